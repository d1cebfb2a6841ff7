-- Calls with those around them, mostly in the order of the entries: the tree is built in Rust.
SELECT {keys}call_id, parent_id, {name} AS function, duration, self_time
FROM calls
WHERE {where}
ORDER BY time
