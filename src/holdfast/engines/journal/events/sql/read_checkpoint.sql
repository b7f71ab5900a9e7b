SELECT seq, crc FROM checkpoint
