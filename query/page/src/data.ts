// What a page embeds (query/src/reports/page), decoded.

import { harmless } from "./format.ts";

/** Weights by slot of time, thread and node. */
export interface Cells {
  slot: Int32Array;
  thread: Int32Array;
  node: Int32Array;
  bar: Int32Array;
  weight: Float64Array;
  count: Float64Array;
}

/** Name, index of the kind, index of the module, source lines. */
export type Label = [string, number, number | null, string | null];

export interface Profile {
  kind: "event" | "calls" | "aggregates" | "difference";
  name: string;
  unit: string;
  subtitle?: string;
  is_count: boolean;
  is_off_cpu: boolean;
  notes: string[];
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
  function: string;
  count: number;
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
  time: number | null;
  duration: number;
  tid: number | null;
  comm: string | null;
  function: string;
  module: string | null;
  caller: string | null;
  args: unknown;
  retval: unknown;
  /** Root first, with semicolons. */
  user_stack: string | null;
  kernel_stack: string | null;
}

/** The longest calls by their begin. */
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

export interface TrackData {
  states: string[];
  /** Nanoseconds; shorter stretches are merged. */
  grain: number;
  /** The event whose samples stand for what ran; null with scheduler events. */
  source: string | null;
  notes: string[];
  all: Track[];
  command: string[];
}

export interface Calls {
  summary: string;
  rows: DurationRow[];
  /** Bars of a power of two. */
  bars: number;
  /** Slots of the page in a slot of the cells. */
  steps: number;
  cells: Cells;
  slowest: SlowCall[];
  chart: Chart;
  durations: string[];
  heatmap: string[];
}

export interface Trace {
  name: string;
  path: string;
  facts: [string, string][];
  length: string | null;
  recorded: string | null;
  losses: [string, number | null][];
  problems: [string, number | null][];
  incomplete: string | null;
  info: string;
}

export interface Data {
  title: string;
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
  /** Thread ID, process ID, name. */
  threads: [number, number | null, string | null][];
  colors: Record<"kinds" | "off_cpu" | "modules" | "changes", [string, string][]> & { names: string[] };
}

function cells(raw: Record<string, number[]> | undefined): Cells | null {
  if (raw === undefined) return null;
  const slot = Int32Array.from(raw["slot"]!);
  for (let index = 1; index < slot.length; index++) slot[index] = slot[index]! + slot[index - 1]!;
  return {
    slot,
    thread: Int32Array.from(raw["thread"]!),
    node: Int32Array.from(raw["node"]!),
    bar: Int32Array.from(raw["bar"]!),
    weight: Float64Array.from(raw["weight"]!),
    count: Float64Array.from(raw["count"]!),
  };
}

/** Sums of distances. */
function running(distances: number[]): Float64Array {
  let sum = 0;
  return Float64Array.from(distances, (distance) => (sum += distance));
}

type RawTrack = Pick<Track, "kind" | "id"> & Record<"gap" | "length" | "what" | "cell" | "cell_what" | "cell_time", number[]>;

/** Joins exact and merged stretches in the order of their begins. */
function track(raw: RawTrack, grain: number): Track {
  const count = raw.gap.length + raw.cell.length;
  const found: Track = {
    kind: raw.kind, id: raw.id, begin: new Float64Array(count), length: new Float64Array(count), what: new Int32Array(count),
    time: new Float64Array(count), isMerged: new Uint8Array(count), reach: new Float64Array(count),
  };
  let [exact, merged, end, cell, reach] = [0, 0, 0, raw.cell[0] ?? 0, -Infinity];
  for (let index = 0; index < count; index++) {
    const begin = exact < raw.gap.length ? end + raw.gap[exact]! : Infinity;
    const isMerged = merged < raw.cell.length && cell * grain <= begin;
    found.isMerged[index] = Number(isMerged);
    if (isMerged) {
      found.begin[index] = cell * grain;
      found.length[index] = grain;
      found.what[index] = raw.cell_what[merged]!;
      found.time[index] = raw.cell_time[merged]!;
      cell += raw.cell[++merged] ?? 0;
    } else {
      found.begin[index] = begin;
      found.time[index] = found.length[index] = raw.length[exact]!;
      found.what[index] = raw.what[exact]!;
      end = begin + raw.length[exact++]!;
    }
    reach = Math.max(reach, found.begin[index]! + found.length[index]!);
    found.reach[index] = reach;
  }
  return found;
}

/** Unpacks the data of the page. */
export async function read(base64: string): Promise<Data> {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = JSON.parse(await new Response(stream).text());
  for (const profile of data.profiles) {
    const parent = [0], label = [-1];
    profile.parent.forEach((distance: number, index: number) => parent.push(index + 1 - distance));
    profile.label.forEach((index: number) => label.push(index));
    profile.parent = Int32Array.from(parent);
    profile.label = Int32Array.from(label);
    profile.cells = cells(profile.cells);
    profile.own = profile.own ? Float64Array.from(profile.own) : null;
    profile.before = profile.before ? Float64Array.from(profile.before) : null;
    profile.is_off_cpu ??= false;
    profile.samples ??= null;
  }
  // What has stacks comes first.
  const hasStacks = (profile: Profile) => profile.labels.some(([, kind]) => kind > 0);
  data.profiles.sort((a: Profile, b: Profile) => Number(hasStacks(b)) - Number(hasStacks(a)));
  if (data.calls !== null) {
    data.calls.cells = cells(data.calls.cells);
    const { names, begin, length, depth, thread, function: functions } = data.calls.chart;
    data.calls.chart = {
      names: names.map(harmless), begin: running(begin), length: Float64Array.from(length), depth: Int32Array.from(depth), thread: Int32Array.from(thread),
      function: Int32Array.from(functions),
    };
  }
  for (const thread of data.threads) if (thread[2] !== null) thread[2] = harmless(thread[2]);
  if (data.tracks != null) data.tracks.all = data.tracks.all.map((raw: RawTrack) => track(raw, data.tracks.grain));
  return data;
}
