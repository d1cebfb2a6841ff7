// Several traces on one page: the time axes, of which one is shown, and commands that show a selection of each trace.
//
//     host    ├──────────────────────────┤     one axis for all traces whose clocks are known to relate
//     guest         ├───────────┤              a time of the axis is begin + a time since the start of the trace
//     other   ├────┤                           its own axis: another dataset of the file

import { type Data, traceOf } from "./data.ts";
import { button, make } from "./dom.ts";

const KEY = "axis";

/** The number of the axis in the address. */
function chosen(): number {
  const number = Number(new URLSearchParams(location.hash.slice(1)).get(KEY) ?? 0);
  return document.getElementById(id(number)) === null ? 0 : number;
}

const id = (number: number) => (number === 0 ? "data" : `data-${number}`);

/** Takes the data of the axis in the address out of the document. */
export function taken(): string {
  const element = document.getElementById(id(chosen()))!;
  for (const other of document.querySelectorAll("script[id^=data]")) other.remove();
  return element.textContent ?? "";
}

/** What a fragment needs to lead to the same axis: `axis=1`. */
export function ofFragment(data: Data): string[] {
  return (data.axis ?? 0) === 0 ? [] : [`${KEY}=${data.axis}`];
}

/** Buttons for the axes of a page; null if there is one. */
export function choice(data: Data): HTMLElement | null {
  const axes = data.axes ?? [];
  if (axes.length < 2) return null;
  const to = (number: number) => () => {
    location.hash = number === 0 ? "" : `${KEY}=${number}`;
    location.reload();
  };
  const buttons = axes.map((name, number) => {
    const one = button(name, `Show the time axis of ${name}`, to(number));
    one.disabled = number === data.axis;
    return one;
  });
  const why = "Clocks that are not known to relate have a time axis each: ";
  return make("p", { class: "axes" }, why, make("span", { class: "tabs" }, ...buttons));
}

/** The traces that a command is for: the one it belongs to, otherwise all of which threads are selected. */
export function concerned(data: Data, trace: number | undefined, threads: Set<number>): number[] {
  const all = data.traces.map((_, index) => index).filter((index) => trace === undefined || index === trace);
  const selected = new Set([...threads].map((thread) => traceOf(data, thread)));
  const some = all.filter((index) => selected.has(index));
  return threads.size === 0 || some.length === 0 ? all : some;
}

/** A range of the axis as nanoseconds since the start of a trace; null if the trace begins later than the range ends. */
export function since(data: Data, trace: number, [from, to]: [number, number]): [number, number] | null {
  const { begin, drift } = data.traces[trace]?.place ?? { begin: 0, drift: 0 };
  const own = (time: number) => Math.max(0, Math.round((time - (begin ?? 0)) / (1 + drift / 1e9)));
  return own(to) === 0 ? null : [own(from), own(to)];
}

/** The largest known error of the traces of an axis, and those whose error is not known, as of their lines. */
export function errors(data: Data): string[] {
  return data.traces.length < 2 ? [] : data.traces.flatMap((trace) => {
    const error = /error .*$/.exec(trace.placement ?? "")?.[0];
    return error === undefined ? [] : [`${trace.name}: ${error}`];
  });
}
