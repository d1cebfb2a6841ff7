'use strict';
// Functions of several kinds, each of which calls spin(). The test knows their lines.

function spin(times) {
  let sum = 0;
  for (let i = 0; i < times; i++) sum = (sum * 31 + i) % 1000003;
  return sum;
}

class Shop {
  constructor(times) { this.total = spin(times); }
  order(times) { return spin(times); }
  get price() { return spin(TIMES); }
}

const TIMES = 30000;

function plain() { return spin(TIMES); }

function recursive(depth) {
  return depth === 0 ? spin(TIMES) : recursive(depth - 1);
}

function* generator() {
  yield spin(TIMES);
}

const kinds = [
  plain,
  function construct() { return new Shop(TIMES); },
  function method() { return shop.order(TIMES); },
  function getter() { return shop.price; },
  function callback() { return [1].map((each) => spin(TIMES)); },
  function sorted() { return [1, 2].sort((one, other) => spin(TIMES)); },
  function recursion() { return recursive(3); },
  function generate() { return [...generator()]; },
  function evaluated() { return eval('spin(TIMES)'); },
  function straßeÜber() { return spin(TIMES); },
];

const shop = new Shop(1);
const end = Date.now() + Number(process.argv[2]) * 1000;
while (Date.now() < end) for (const kind of kinds) kind();
