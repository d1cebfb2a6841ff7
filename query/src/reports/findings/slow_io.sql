-- The slowest request of a block device.
SELECT 'warning' AS severity,
  concat('A ', coalesce(op, 'request'), ' of ', device, ' took ', duration(duration)) AS title,
  concat(bytes, ' bytes by ', coalesce(comm, 'an unknown thread'), ', from ', CAST(round(since_start(time), 6) AS TEXT), ' s on') AS detail,
  'A device answers within milliseconds unless it is overloaded, throttled or failing' AS why,
  concat('SELECT comm, op, bytes, queued, duration, error FROM block_io WHERE device = ''', device, ''' ORDER BY duration DESC LIMIT 20') AS sql
FROM block_io
WHERE duration >= 100ms AND {threads}
ORDER BY duration DESC, time
LIMIT 1
