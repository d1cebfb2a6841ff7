-- Weight per pair of stacks. The tree is walked in Rust: a recursive query takes 20 to 50 times as long.
SELECT {keys}, sum({weight}) AS weight, count(*) AS samples
FROM {table}
WHERE {where}
GROUP BY {keys}
