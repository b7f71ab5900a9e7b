INSERT OR REPLACE INTO checkpoint (only_row, seq, forget_before_us, crc)
VALUES (1, :seq, :forget_before_us, :crc)
