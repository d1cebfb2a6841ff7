// What the server answers. Times are nanoseconds from the start of the trace.

export interface Trace {
  name: string;
  path: string;
  is_complete: boolean;
  /** Nanoseconds of the trace's clock, as digits. */
  start: string;
  length: number;
  /** Nanoseconds that were recorded; null if that is not known. */
  recorded: number | null;
  /** Of all tables. */
  rows: number;
  /** Without the recorder's notes. */
  events: number;
  calls: number;
  facts: [string, string][];
}

export interface Meta {
  version: string;
  traces: Trace[];
}

export interface Thread {
  tid: number;
  pid: number | null;
  comm: string | null;
  samples: number;
  calls: number;
  levels: number;
  switches: number;
}

/** Time, CPU, number, reason, event. */
export type Loss = [number, number | null, number | null, string, string | null];

export interface TrackList {
  cpus: number[];
  has_states: boolean;
  states: string[];
  samples: boolean;
  /** Names of the sampled events, the one with the most samples first. */
  sampled: string[];
  events: { name: string; table: string; rows: number }[];
  threads: Thread[];
  losses: Loss[];
}

/** A row of a tile; which columns it has depends on its kind. */
export interface TileRow {
  id: number;
  depth?: number;
  /** Steps, and of each: number of events; of calls, the sum of their times; of CPUs, the thread that ran longest. */
  x: number[];
  n: number[];
  sum?: number[];
  y?: number[];
  /** How much of each step a CPU was used, and each state was: in units of `unit(step)`. */
  share?: number[];
  shares?: Record<string, number[]>;
  /** Of counts: time of a lone event within its step. */
  at?: number[];
  /** Of what is drawn one by one: begin, duration, function, state, CPU, thread. */
  t: number[];
  d?: number[];
  f?: number[];
  s?: number[];
  c?: number[];
  w?: number[];
}

/** Nanoseconds of the unit of shares. */
export function unit(step: number): number {
  return Math.max(1, step / 32);
}

/** The columns x and t come as differences: sums them. */
export function restore(tile: Tile): Tile {
  for (const row of tile.rows) {
    row.t ??= [];
    for (const column of [row.x, row.t]) for (let at = 1; at < column.length; at++) column[at]! += column[at - 1]!;
  }
  return tile;
}

export interface Tile {
  rows: TileRow[];
  names?: string[];
  is_cut?: boolean;
  /** Thousandths of the time of which it is made, as long as the index is being computed. */
  about?: number;
}

export type Cell = string | number | boolean | null;

export interface Grid {
  columns: { name: string; kind: "time" | "duration" | "share" | "number" | "text" }[];
  rows: Cell[][];
  is_cut: boolean;
}

export interface Details {
  kind: string;
  sql: string;
  events: Grid;
  stacks: Grid | null;
  around: Grid | null;
}

export interface PanelRows {
  command: string;
  grid?: Grid;
  error?: string;
  notes?: string;
}

/** Stacks of a selection as a tree: node 0 is the root, parents precede their callees. */
export interface FlameTree {
  command: string;
  names: string[];
  parent: number[];
  label: number[];
  own: number[];
  total: number[];
  omitted: number;
  /** `ns`, or nothing. */
  unit: string;
  is_cut: boolean;
  notes: string;
  error?: string;
}

/** Instructions and source lines: their shares in percent, and the lines as `annotate` prints them. */
export interface Code {
  command: string;
  lines?: [number | null, string][];
  is_cut?: boolean;
  notes?: string;
  error?: string;
}

/** Threads with events in a range; null if that is not known yet. */
export interface Active {
  tids: number[] | null;
}

/** How far the index of a trace is that is computed; null if none is. */
export interface Progress {
  thousandths: number | null;
  is_done: boolean;
}

export type Kind = "events" | "samples" | "cpusamples" | "calls" | "states" | "cpus";

async function answered<T>(response: Response): Promise<T> {
  if (!response.ok) throw new Error((await response.text()).trim());
  return (await response.json()) as T;
}

/** A value of a parameter. The digits of a large number would otherwise be the fewest that tell it apart, which are those of another integer. */
export function written(value: string | number): string {
  return typeof value === "number" && Number.isInteger(value) ? BigInt(value).toString() : String(value);
}

export async function get<T>(path: string, parameters: Record<string, string | number | string[]>, signal?: AbortSignal): Promise<T> {
  const query = Object.entries(parameters).flatMap(([name, value]) => [value].flat().map((one) => `${name}=${encodeURIComponent(written(one))}`)).join("&");
  return answered<T>(await fetch(`/api/${path}?${query}`, signal === undefined ? {} : { signal }));
}

export async function sql(text: string, rows: number, signal?: AbortSignal): Promise<Grid> {
  const body = JSON.stringify({ sql: text, rows });
  return answered<Grid>(await fetch("/api/sql", {
    method: "POST", body, headers: { "Content-Type": "application/json" }, ...(signal === undefined ? {} : { signal }),
  }));
}

/** Whether a request was canceled by the page itself. */
export function isCanceled(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

export function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
