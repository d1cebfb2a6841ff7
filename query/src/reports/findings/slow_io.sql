-- The slowest request of a block device.
SELECT CASE WHEN duration >= 100000000 THEN 'warning' ELSE 'info' END AS severity,
  concat('A ', coalesce(op, 'request'), ' of ', device, ' took ', duration(duration)) AS title,
  concat(bytes, ' bytes by ', coalesce(comm, 'an unknown thread'), ', from ', CAST(round((time - {start}) / 1e9, 6) AS TEXT), ' s on') AS detail,
  concat('SELECT * FROM block_io WHERE device = ''', device, ''' ORDER BY duration DESC LIMIT 20') AS sql
FROM block_io
WHERE duration IS NOT NULL
ORDER BY duration DESC, time
LIMIT 1
