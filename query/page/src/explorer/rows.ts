// The rows of the timeline: CPUs, event types, processes with their threads; which are open, and where each is.

import type { Thread, TrackList } from "./api.ts";
import { grouped, harmless, pattern } from "../format.ts";

export type RowKind = "group" | "cpu" | "event" | "counter" | "thread";

export interface Row {
  kind: RowKind;
  /** Number of a CPU, place of an event or counter, tid of a thread. */
  id: number;
  name: string;
  /** Group that opens and closes, and that the row belongs to. */
  group: string;
  y: number;
  height: number;
  thread: Thread | null;
  /** Whether it is the only row of a process, which has no line above it. */
  isAlone?: boolean;
}

export const HEAD = 22;
export const BAND = 16;
export const TICKS = 12;
export const CALL = 15;
/** Height of a counter's line. */
export const LINE = 30;
export const GAP = 4;
/** Levels of calls below a thread. */
const LEVELS = 24;
/** Processes that are open at first: those with most in them. */
const OPEN = 6;
/** More event types are closed at first. */
const MANY = 12;
/** Threads of an open process at first. */
const FEW = 60;

export function threadName(thread: Thread): string {
  return thread.tid < 0 ? "without a thread" : `${harmless(thread.comm ?? "[unknown]")} (${thread.tid})`;
}

const weight = (thread: Thread) => thread.samples + thread.calls + thread.switches;

/** Group of the threads whose processes have no event in view. */
export const QUIET = "quiet";

function quietText(count: number): string {
  return `${grouped(count)} thread${count === 1 ? "" : "s"} without events in view`;
}

/** A row in the list of pinned ones. */
export function pinOf(row: Row): string {
  return `${row.kind}${row.id}`;
}

export class Rows {
  all: Row[] = [];
  height = 0;
  /** Rows that stay above the others. */
  pinned: Row[] = [];
  pinnedHeight = 0;
  private readonly isOpen = new Map<string, boolean>();
  private readonly processes: { pid: number | null; name: string; threads: Thread[] }[];

  /** `before`: of the same trace, whose groups stay open or closed. */
  constructor(private readonly list: TrackList, private readonly counters: string[], before: Rows | null = null) {
    const byPid = new Map<number | null, Thread[]>();
    for (const thread of list.threads) {
      // Without any rows, there is nothing to see; what idles is seen at the CPUs.
      if (weight(thread) === 0 && !list.has_states) continue;
      if (list.has_states && thread.tid === 0 && thread.samples + thread.calls === 0) continue;
      const known = byPid.get(thread.pid);
      if (known === undefined) byPid.set(thread.pid, [thread]);
      else known.push(thread);
    }
    const total = (threads: Thread[]) => threads.reduce((sum, thread) => sum + weight(thread), 0);
    // Samples are time; an event that is recorded at each switch says little of it. What idles is not busy.
    const samples = (threads: Thread[]) => threads.reduce((sum, thread) => sum + thread.samples, 0);
    this.processes = [...byPid].map(([pid, threads]) => {
      threads.sort((a, b) => b.samples - a.samples || weight(b) - weight(a) || a.tid - b.tid);
      const leader = threads.find((thread) => thread.tid === pid) ?? threads[0]!;
      const name = pid === null ? "threads without a process" : `${harmless(leader.comm ?? "process")} · process ${pid}`;
      return { pid, name, threads };
    }).sort((a, b) => Number(a.pid === 0) - Number(b.pid === 0) || samples(b.threads) - samples(a.threads) || total(b.threads) - total(a.threads) || (a.pid ?? -1) - (b.pid ?? -1));
    this.processes.forEach((process, place) => this.isOpen.set(this.groupOf(process.pid), place < OPEN && process.threads.length <= FEW));
    this.isOpen.set("CPUs", true);
    this.isOpen.set("Counters", counters.length <= MANY);
    this.isOpen.set("Events", list.events.length <= MANY);
    for (const [group, isOpen] of before?.isOpen ?? []) this.isOpen.set(group, isOpen);
  }

  private groupOf(pid: number | null): string {
    return `process ${pid}`;
  }

  toggle(group: string): void {
    this.isOpen.set(group, !this.open(group));
  }

  open(group: string): boolean {
    return this.isOpen.get(group) ?? false;
  }

  /**
   * Lists the rows whose names match a filter; a match opens its group. Without a filter, threads that are not in `active` are behind a line
   * that opens them, unless they are selected; `null`: it is not known which those are.
   */
  layout(filter: string, pins: string[], active: ReadonlySet<number> | null = null, selected: number[] = []): void {
    const expression = pattern(filter);
    const isQuiet = (thread: Thread) => active !== null && expression === null && !active.has(thread.tid) && !selected.includes(thread.tid);
    const rows: Row[] = [];
    let y = 0;
    const add = (kind: RowKind, id: number, name: string, group: string, height: number, thread: Thread | null = null) => {
      rows.push({ kind, id, name, group, y, height, thread });
      y += height;
    };
    const matches = (name: string) => expression === null || expression.test(name);
    const section = (group: string, name: string, members: { name: string; add: () => void }[]) => {
      const all = matches(name) && expression !== null;
      const shown = members.filter((member) => all || matches(member.name));
      if (shown.length === 0) return;
      add("group", shown.length, name, group, HEAD);
      if (this.open(group) || (expression !== null && !all)) for (const member of shown) member.add();
    };
    section("CPUs", "CPUs", this.list.has_states || this.list.samples ? this.list.cpus.map((cpu) => {
      const name = `CPU ${cpu}`;
      return { name, add: () => add("cpu", cpu, name, "CPUs", BAND + GAP) };
    }) : []);
    section("Events", "Events", this.list.events.map((event, place) => {
      const name = harmless(event.name);
      return { name, add: () => add("event", place, name, "Events", BAND + GAP) };
    }));
    section("Counters", "Counters", this.counters.map((counter, place) => {
      const name = harmless(counter);
      return { name, add: () => add("counter", place, name, "Counters", LINE + GAP) };
    }));
    const listed = (process: { pid: number | null; name: string; threads: Thread[] }) => {
      const group = this.groupOf(process.pid);
      const ofThread = (thread: Thread) => {
        const name = threadName(thread);
        return { name, add: () => add("thread", thread.tid, name, group, this.heightOf(thread), thread) };
      };
      // A line above the only thread would repeat its name.
      const only = process.threads.length === 1 && process.threads[0]!.tid === process.pid ? ofThread(process.threads[0]!) : null;
      if (only !== null) {
        if (!matches(only.name) && !matches(process.name)) return;
        only.add();
        rows.at(-1)!.isAlone = true;
        return;
      }
      const quiet = process.threads.filter(isQuiet);
      // Of a process without any, its own line opens them.
      if (quiet.length === 0 || quiet.length === process.threads.length) return section(group, process.name, process.threads.map(ofThread));
      const others = process.threads.filter((thread) => !isQuiet(thread)).map(ofThread);
      const line = `${QUIET} ${group}`;
      const opens = { name: "", add: () => {
        add("group", quiet.length, quietText(quiet.length), line, HEAD);
        if (this.open(line)) for (const thread of quiet) ofThread(thread).add();
      } };
      section(group, process.name, [...others, opens]);
      rows.find((row) => row.group === group && row.kind === "group")!.id = process.threads.length;
    };
    const isAllQuiet = (process: { threads: Thread[] }) => process.threads.every(isQuiet);
    this.processes.filter((process) => !isAllQuiet(process)).forEach(listed);
    const asleep = this.processes.filter(isAllQuiet);
    if (asleep.length > 0) {
      const count = asleep.reduce((sum, process) => sum + process.threads.length, 0);
      add("group", count, quietText(count), QUIET, HEAD);
      if (this.open(QUIET)) asleep.forEach(listed);
    }
    this.all = rows;
    this.height = y;
    this.pin(pins);
  }

  /** Places the pinned rows. Those that the trace does not have are not shown. */
  private pin(pins: string[]): void {
    let y = 0;
    this.pinned = pins.flatMap((pin): Row[] => {
      const [, kind, number] = /^(cpu|event|counter|thread)(-?\d+)$/.exec(pin) ?? [];
      const id = Number(number);
      const of = (name: string | undefined, height: number, thread: Thread | null = null): Row[] => {
        if (name === undefined) return [];
        y += height;
        return [{ kind: kind as RowKind, id, name, group: "pinned", y: y - height, height, thread }];
      };
      switch (kind) {
        case "cpu": return of(this.list.cpus.includes(id) ? `CPU ${id}` : undefined, BAND + GAP);
        case "event": return of(this.list.events[id] === undefined ? undefined : harmless(this.list.events[id].name), BAND + GAP);
        case "counter": return of(this.counters[id] === undefined ? undefined : harmless(this.counters[id]), LINE + GAP);
        case "thread": {
          const thread = this.list.threads.find((one) => one.tid === id);
          return thread === undefined ? [] : of(threadName(thread), this.heightOf(thread), thread);
        }
        default: return [];
      }
    });
    this.pinnedHeight = y;
  }

  heightOf(thread: Thread): number {
    const levels = Math.min(thread.levels, LEVELS);
    return Math.max(BAND, (this.list.has_states ? BAND : 0) + (thread.samples > 0 ? TICKS : 0) + levels * CALL) + GAP;
  }

  at(y: number, isPinned: boolean): Row | undefined {
    return (isPinned ? this.pinned : this.all).find((row) => y >= row.y && y < row.y + row.height);
  }
}
