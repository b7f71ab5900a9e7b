SELECT seq, forget_before_us, crc FROM checkpoint
