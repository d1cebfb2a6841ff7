# Runs known functions for SECONDS: calls from Ruby, from C (each, map, sort_by, inject), in a block, a thread, a fiber.
# With a second argument, first prints what Ruby says about the callers of the innermost method, outermost first.

class Keys
  def spin(count)
    report if $report
    total = 0
    index = 0
    while index < count
      total += index * index
      index += 1
    end
    total
  end

  def key(item)
    spin(200) + item
  end

  def report
    calls = caller_locations(1).select { |call| call.path == __FILE__ }
    puts "calls: " + calls.reverse.map { |call| "#{call.label}:#{call.lineno}" }.join(";")
  end
end

def produce(keys)
  40.times.map do |number|
    keys.spin(150) + number
  end
end

def nested(keys, depth)
  return keys.spin(800) if depth == 0
  [1].each { nested(keys, depth - 1) }
end

def work(keys)
  (0...40).sort_by { |item| keys.key(item) }
  produce(keys)
  nested(keys, 5)
end

def in_thread(keys, finish)
  loop do
    keys.spin(1000)
    break if Process.clock_gettime(Process::CLOCK_MONOTONIC) >= finish
  end
end

def in_fiber(keys)
  fiber = Fiber.new { keys.spin(3000) }
  fiber.resume
end

def main(seconds)
  finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
  keys = Keys.new
  thread = Thread.new { in_thread(keys, finish) }
  while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
    work(keys)
    in_fiber(keys)
  end
  thread.join
end

if ARGV[1]
  $report = true
  main(0.0)
  keys = Keys.new
  work(keys)
  in_fiber(keys)
  $report = false
  $stdout.flush
end
main(ARGV[0].to_f)
