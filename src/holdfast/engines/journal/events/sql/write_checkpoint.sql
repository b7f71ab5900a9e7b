INSERT OR REPLACE INTO checkpoint (only_row, seq, crc)
VALUES (1, :seq, :crc)
