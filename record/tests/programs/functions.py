"""Runs known functions for SECONDS: calls from Python, from C (sort), of a generator, in a thread."""

import sys
import threading
import time


class Keys:
    def spin(self, count):
        total = 0
        for number in range(count):
            total += number * number
        return total

    def key(self, item):
        return self.spin(200) + item


def produce(keys, count):
    for number in range(count):
        yield keys.spin(150) + number


def work(keys):
    sorted(range(40), key=keys.key)
    return sum(produce(keys, 40))


def in_thread(end, keys):
    while time.monotonic() < end:
        keys.spin(1000)


def main():
    end = time.monotonic() + float(sys.argv[1])
    keys = Keys()
    thread = threading.Thread(target=in_thread, args=(end, keys))
    thread.start()
    while time.monotonic() < end:
        work(keys)
    thread.join()


main()
