DELETE FROM tallies WHERE count = 0
