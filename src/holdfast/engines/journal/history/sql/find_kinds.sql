SELECT json_group_array(json_array(kind, count)) FROM kinds WHERE {where}
