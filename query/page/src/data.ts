// What a page embeds (query/src/reports/page), decoded.

import { harmless } from "./format.ts";
import type { Counter, Point } from "./lines.ts";

/** Weights by slot of time, thread and node, in the order of threads. */
export interface Cells {
  slot: Int32Array;
  thread: Int32Array;
  node: Int32Array;
  /** Of calls, the logarithm of the duration; of the time off the CPU, whole slots of a cell, if they are more than one. */
  bar: Int32Array;
  weight: Float64Array;
  count: Float64Array;
}

/** Name, index of the kind, index of the module, source lines. */
export type Label = [string, number, number | null, string | null];

export interface Profile {
  /** Number of its trace, if there are several. */
  trace?: number;
  kind: "event" | "calls" | "aggregates" | "difference";
  name: string;
  unit: string;
  subtitle?: string;
  is_count: boolean;
  is_off_cpu: boolean;
  notes: string[];
  /** The note on incomplete stacks of all samples, and its hint; of samples only, and if there are any. */
  incomplete?: [string, string] | null;
  labels: Label[];
  modules: string[];
  /** Node 0 is the root; a parent precedes its children. */
  parent: Int32Array;
  label: Int32Array;
  cells: Cells | null;
  own: Float64Array | null;
  before: Float64Array | null;
  /** Samples after and before. */
  samples: [number, number] | null;
  flamegraph: string[];
  top?: string[];
  heatmap?: string[];
}

export interface DurationRow {
  trace?: number;
  function: string;
  count: number;
  /** Calls of unknown duration. */
  unfinished: number;
  total: number | null;
  self: number | null;
  avg: number | null;
  min: number | null;
  p50: number | null;
  p95: number | null;
  p99: number | null;
  max: number | null;
}

export interface SlowCall {
  trace?: number;
  time: number | null;
  duration: number;
  tid: number | null;
  comm: string | null;
  function: string;
  module: string | null;
  caller: string | null;
  args: unknown;
  retval: unknown;
  /** Indexes of stacks. */
  user_stack: number | null;
  kernel_stack: number | null;
}

/** The longest calls, by thread and begin. */
export interface Chart {
  names: string[];
  begin: Float64Array;
  length: Float64Array;
  depth: Int32Array;
  thread: Int32Array;
  /** Index of `names`. */
  function: Int32Array;
}

/** The states of threads, in the order of their indexes in tracks. */
export const STATES = [
  "running", "runnable", "preempted", "uninterruptible", "interruptible", "stopped", "idle", "parked", "dead", "unknown",
];

/** What was on a CPU (threads) or what a thread did (states), by begin. */
export interface Track {
  kind: "cpu" | "thread";
  /** Number of its trace, if there are several, and the event whose samples stand for what ran there. */
  trace?: number;
  source?: string | null;
  /** Number of the CPU, index of the thread. */
  id: number;
  begin: Float64Array;
  length: Float64Array;
  what: Int32Array;
  /** Less than the length in merged stretches. */
  time: Float64Array;
  isMerged: Uint8Array;
  /** The latest end so far. */
  reach: Float64Array;
}

/** Whether a thread is that of a CPU without work: every CPU has one with TID 0, swapper/0 and so on. */
export function isIdleThread([tid]: Data["threads"][number]): boolean {
  return tid === 0;
}

/** The number of a thread's trace. */
export function traceOf(data: Data, thread: number): number {
  return data.threads[thread]?.[3] ?? 0;
}

/** Wake-ups in the order of time, and the indexes of the threads. */
export interface Wakes {
  time: Float64Array;
  waker: Int32Array;
  woken: Int32Array;
}

export interface TrackData {
  states: string[];
  /** Nanoseconds; shorter stretches are merged. */
  grain: number;
  /** The event whose samples stand for what ran; null with scheduler events. */
  source: string | null;
  notes: string[];
  all: Track[];
  /** Null if they were not recorded. */
  wakes: Wakes | null;
  command: string[];
}

export interface Calls {
  summary: string;
  /** Of all functions; the rows are those of some. */
  count: number;
  rows: DurationRow[];
  /** Bars of a power of two. */
  bars: number;
  /** Slots of the page in a slot of the cells. */
  steps: number;
  cells: Cells;
  /** The time in which any call of a thread ran, as whole slots if `bar` is above 0. */
  busy: Cells;
  slowest: SlowCall[];
  /** Root first, with semicolons. */
  stacks: string[];
  chart: Chart;
  durations: string[];
  heatmap: string[];
}

export interface Trace {
  /** Where it stands on the time axis, in words; and its begin there, in nanoseconds, with its drift in parts per billion. */
  placement?: string;
  place?: { begin: number | null; drift: number };
  name: string;
  path: string;
  facts: [string, string][];
  /** Whether the events of some threads only were recorded. */
  is_of_threads: boolean;
  /** Nanoseconds that were recorded within the selected time; length: those of the whole trace, in words. */
  duration: number | null;
  length: string | null;
  recorded: string | null;
  losses: [string, number | null][];
  /** Times in which fewer events were recorded, but none was lost. */
  gaps?: [string, number | null][];
  problems: [string, number | null][];
  incomplete: string | null;
  info: string;
}

/** A table of `diff`. */
export interface Change {
  title: string;
  /** The column with the names. */
  key: string;
  unit: string | null;
  summary: string | null;
  rows: Record<string, string | number | boolean | null>[];
  command: string[];
}

/** A line of `findings`. */
export interface FindingRow {
  trace?: number;
  severity: string;
  title: string;
  detail: string | null;
  why?: string | null;
  /** The query to go on with. */
  sql: string | null;
}

export interface Data {
  /** The time axes of the page, and the number of this one. */
  axes?: string[];
  axis?: number;
  title: string;
  /** Null if the page has only a part of the trace, or two traces. */
  findings?: FindingRow[] | null;
  /** Of whoever sends the page. */
  note?: string | null;
  changes?: Change[];
  version: string;
  traces: Trace[];
  filters: string[];
  condition: string | null;
  omitted: string[];
  /** Nanoseconds: of the trace, of a slot, of a column of the grid. */
  length?: number;
  slot?: number;
  column?: number;
  losses?: number[];
  profiles: Profile[];
  calls: Calls | null;
  tracks: TrackData | null;
  summaries?: { counters: CounterRow[]; aggregates: AggregateRow[]; events: EventRow[] } | null;
  /** The code of the hottest functions, of `most` of each event. */
  code?: { most: number; functions: FunctionCode[] } | null;
  /** Counters over time. */
  lines?: CounterLine[] | null;
  /** Thread ID, process ID, name; of several traces also the number of the trace. */
  threads: [number, number | null, string | null, number?][];
  colors: Record<"kinds" | "off_cpu" | "modules" | "changes", [string, string][]> & { names: string[] };
}

/** Instructions and source lines with their shares, of which some may be omitted; or the reason why there are none. */
export interface FunctionCode {
  event: string;
  function: string;
  module: string;
  /** Share of the event. */
  percent: number;
  lines?: [number | null, string][];
  omitted?: number;
  reason?: string;
}

/** A counter of --stat or perf stat: its sum, the part of the time for which it ran, its sum in each of at most 200 periods. */
export interface CounterRow {
  event: string;
  unit: string | null;
  total: number | null;
  periods: number;
  share: number | null;
  error: string | null;
  course: (number | null)[];
}

/** A counter and its points, in nanoseconds after the begin of the trace, in steps of the whole trace. */
export interface CounterLine extends Counter {
  points: Point[];
  /** The query of its values. */
  sql: string;
}

/** A key of an aggregation without stacks; bars of a distribution. */
export interface AggregateRow {
  name: string | null;
  action: string | null;
  keys: string | null;
  value: number | null;
  exact_value: number | null;
  value_count: number | null;
  low: (number | null)[] | null;
  high: (number | null)[] | null;
  count: number[] | null;
}

export interface EventRow {
  event: string;
  kind: string;
  table_name: string;
  rows: number;
}

/** Where a column is: its first byte, the count of its numbers, the bytes of each, and its form. */
type Place = [number, number, number, number];
const DIFFERENCES = 1;
const SIGNED = 2;

/** Reads columns of numbers (query/src/render/columns.rs). */
class Columns {
  constructor(private readonly bytes: Uint8Array) {}

  read([begin, count, width, form]: Place): Float64Array {
    const { bytes } = this;
    const numbers = new Float64Array(count);
    for (let index = 0; index < count; index++) numbers[index] = bytes[begin + index]!;
    for (let place = 1; place < width; place++) {
      const weight = 256 ** place;
      const at = begin + place * count;
      for (let index = 0; index < count; index++) numbers[index]! += bytes[at + index]! * weight;
    }
    if ((form & SIGNED) !== 0) {
      for (let index = 0; index < count; index++) {
        const number = numbers[index]!;
        numbers[index] = number % 2 === 0 ? number / 2 : -(number + 1) / 2;
      }
    }
    if ((form & DIFFERENCES) !== 0) for (let index = 1; index < count; index++) numbers[index]! += numbers[index - 1]!;
    return numbers;
  }

  integers(place: Place): Int32Array {
    return new Int32Array(this.read(place));
  }
}

function cells(raw: Record<keyof Cells, Place>, columns: Columns): Cells {
  return {
    slot: columns.integers(raw.slot), thread: columns.integers(raw.thread), node: columns.integers(raw.node), bar: columns.integers(raw.bar),
    weight: columns.read(raw.weight), count: columns.read(raw.count),
  };
}

interface RawTree {
  labels: Record<"name" | "kind" | "module" | "source", Place>;
  /** Levels that end before each node. */
  left: Place;
  /** The place of a node's label among those of the callees of its caller's label so far, from 1; 0 for a new one. */
  callee: Place;
  new: Place;
}

/** The labels, parents and label indexes of a tree (query/src/reports/page/trees.rs). */
function tree(raw: RawTree, names: string[], columns: Columns): Pick<Profile, "labels" | "parent" | "label"> {
  const { name, kind, module, source } = raw.labels;
  const [kinds, modules, sources] = [columns.integers(kind), columns.integers(module), columns.integers(source)];
  const labels = Array.from(columns.integers(name), (name, index): Label => [
    names[name]!, kinds[index]!, modules[index] === 0 ? null : modules[index]! - 1, sources[index] === 0 ? null : names[sources[index]! - 1]!,
  ]);
  const [left, callee, fresh] = [columns.integers(raw.left), columns.integers(raw.callee), columns.integers(raw.new)];
  const [parent, label] = [new Int32Array(left.length + 1), new Int32Array(left.length + 1)];
  label[0] = -1;
  const known: number[][] = Array.from({ length: labels.length + 1 }, () => []);
  const path = new Int32Array(parent.length);
  let [next, levels] = [0, 1];
  for (let node = 1; node < parent.length; node++) {
    levels -= left[node - 1]!;
    const caller = path[levels - 1]!;
    parent[node] = caller;
    path[levels++] = node;
    const callees = known[label[caller]! + 1]!;
    const place = callee[node - 1]!;
    if (place === 0) callees.push(fresh[next++]!);
    label[node] = callees[(place === 0 ? callees.length : place) - 1]!;
  }
  return { labels, parent, label };
}

type RawTrack = Pick<Track, "kind" | "id" | "trace" | "source"> & { grain?: number } & Record<"gap" | "length" | "what" | "cell" | "cell_what" | "cell_time", Place>;

/** Joins exact and merged stretches in the order of their begins. */
function track(raw: RawTrack, grain: number, columns: Columns): Track {
  const [gaps, lengths, whats] = [columns.read(raw.gap), columns.read(raw.length), columns.integers(raw.what)];
  const [cells, cellWhats, cellTimes] = [columns.read(raw.cell), columns.integers(raw.cell_what), columns.read(raw.cell_time)];
  const count = gaps.length + cells.length;
  const found: Track = {
    ...(raw.trace === undefined ? {} : { trace: raw.trace, source: raw.source ?? null }),
    kind: raw.kind, id: raw.id, begin: new Float64Array(count), length: new Float64Array(count), what: new Int32Array(count),
    time: new Float64Array(count), isMerged: new Uint8Array(count), reach: new Float64Array(count),
  };
  let [exact, merged, end, reach] = [0, 0, 0, -Infinity];
  for (let index = 0; index < count; index++) {
    const begin = exact < gaps.length ? end + gaps[exact]! : Infinity;
    const isMerged = merged < cells.length && cells[merged]! * grain <= begin;
    found.isMerged[index] = Number(isMerged);
    if (isMerged) {
      found.begin[index] = cells[merged]! * grain;
      found.length[index] = grain;
      found.what[index] = cellWhats[merged]!;
      found.time[index] = cellTimes[merged++]!;
    } else {
      found.begin[index] = begin;
      found.time[index] = found.length[index] = lengths[exact]!;
      found.what[index] = whats[exact]!;
      end = begin + lengths[exact++]!;
    }
    reach = Math.max(reach, found.begin[index]! + found.length[index]!);
    found.reach[index] = reach;
  }
  return found;
}

/** Unpacks the data of the page: JSON, a line feed, and columns. */
export async function read(base64: string): Promise<Data> {
  const letters = atob(base64);
  const packed = new Uint8Array(letters.length);
  for (let index = 0; index < packed.length; index++) packed[index] = letters.charCodeAt(index);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const end = bytes.indexOf(10);
  const data = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  const columns = new Columns(bytes.subarray(end + 1));
  for (const profile of data.profiles) {
    Object.assign(profile, tree(profile, data.names, columns));
    profile.modules = data.names;
    profile.cells = profile.cells == null ? null : cells(profile.cells, columns);
    profile.own = profile.own == null ? null : columns.read(profile.own);
    profile.before = profile.before == null ? null : columns.read(profile.before);
    profile.is_off_cpu ??= false;
    profile.samples ??= null;
  }
  // What has stacks comes first.
  const hasStacks = (profile: Profile) => profile.labels.some(([, kind]) => kind > 0);
  data.profiles.sort((a: Profile, b: Profile) => Number(hasStacks(b)) - Number(hasStacks(a)));
  if (data.calls !== null) {
    data.calls.cells = cells(data.calls.cells, columns);
    data.calls.busy = cells(data.calls.busy, columns);
    const { begin, length, depth, thread, function: functions } = data.calls.chart;
    const chart: Chart = {
      names: [], begin: columns.read(begin), length: columns.read(length), depth: columns.integers(depth), thread: columns.integers(thread),
      function: columns.integers(functions),
    };
    for (const name of new Set(chart.function)) chart.names[name] = harmless(data.names[name]);
    data.calls.chart = chart;
  }
  for (const line of data.lines ?? []) line.name = harmless(line.name);
  for (const thread of data.threads) {
    if (thread[2] !== null) thread[2] = harmless(thread[2]);
    // Of several traces, a thread is named with its trace.
    if (data.traces.length > 1) thread[2] = `${harmless(data.traces[thread[3] ?? 0].name)}: ${thread[2] ?? "[unknown]"}`;
  }
  if (data.tracks != null) {
    data.tracks.all = data.tracks.all.map((raw: RawTrack) => track(raw, raw.grain ?? data.tracks.grain, columns));
    const { wakes } = data.tracks;
    data.tracks.wakes = wakes == null ? null
      : { time: columns.read(wakes.time), waker: columns.integers(wakes.waker), woken: columns.integers(wakes.woken) };
  }
  return data;
}
