// Two selections, of one trace or of two, compared as `diff` does.

import { button, make } from "../dom.ts";
import { duration, harmless } from "../format.ts";
import { exactTime } from "../state.ts";
import { type PanelRows, get } from "./api.ts";
import type { View } from "./view.ts";

/** What `diff` compares, with its words. */
const CHOICES: ["by" | "metric" | "per", string, [string, string][]][] = [
  ["by", "Compare by", [["", "function"], ["module", "module"], ["stack", "stack"], ["comm", "thread name"], ["pid", "process"], ["cpu", "CPU"], ["event", "event"], ["syscall", "system call"]]],
  ["metric", "Value", [["", "self"], ["total", "total"], ["count", "count"], ["avg", "average duration"], ["p50", "median duration"], ["p95", "95th percentile"], ["p99", "99th percentile"]]],
  ["per", "Per", [["", "second if lengths differ"], ["run", "whole"], ["second", "per second"], ["total", "share of the total"]]],
];

function words(view: View, trace: number, from: number, to: number): string {
  const name = view.meta.traces.length > 1 ? `${harmless(view.meta.traces[trace]?.name ?? "")}, ` : "";
  return `${name}${exactTime(Math.max(0, from))} to ${exactTime(to)} (${duration(to - from)})`;
}

/** What is compared, and the choices of how. */
export function compareTools(view: View, [from, to]: [number, number]): HTMLElement {
  const { base, trace } = view.now;
  const keep = button("Keep as before", "Compare later selections with this one (b)", () => view.change({ base: [trace, from, to] }));
  const wholes = view.meta.traces.length < 2 ? [] : [make("select", { "aria-label": "Before: a whole trace", id: "whole" }, make("option", { value: "" }, "a whole trace…"),
    ...view.meta.traces.map((one, index) => make("option", { value: String(index) }, harmless(one.name))))];
  wholes[0]?.addEventListener("change", (event) => {
    const index = Number((event.target as HTMLSelectElement).value);
    view.change({ base: [index, 0, view.meta.traces[index]!.length] });
  });
  const shown = base === null ? "none yet: select a time and keep it, then select another one" : words(view, ...base);
  const more = base === null ? [] : [
    button("Swap", "Exchange before and after", () => {
      const [other, begin, end] = base;
      if (other !== trace) view.open(other);
      view.change({ base: [trace, from, to], selection: [begin, end], panel: "compare" });
    }),
    ...CHOICES.map(([name, label, options]) => {
      const choice = make("select", { "aria-label": label, id: name }, ...options.map(([value, text]) => make("option", { value }, text)));
      choice.value = view.now[name];
      choice.addEventListener("change", () => view.change({ [name]: choice.value }));
      return choice;
    }),
  ];
  return make("div", {}, make("p", { class: "tools" }, make("span", { id: "before" }, `before: ${shown}`), keep, ...wholes, ...more),
    make("p", { class: "note" }, `after: ${words(view, trace, from, to)}`));
}

/** The rows of the comparison; null if there is nothing to compare with. */
export async function compared(view: View, [from, to]: [number, number], signal: AbortSignal): Promise<PanelRows | null> {
  const { base, trace, tids, by, metric, per } = view.now;
  if (base === null) return null;
  const [other, begin, end] = base;
  // Threads of another trace have other IDs.
  const ids = other === trace ? tids.join(",") : "";
  const found = await get<PanelRows>("diff", { trace: other, from: begin, to: end, other: trace, from2: from, to2: to, ids, by, metric, per }, signal);
  const note = other !== trace && tids.length > 0 ? ["of all threads: those of two traces differ"] : [];
  return { ...found, notes: [...note, ...(found.notes === undefined || found.notes === "" ? [] : [found.notes])].join("\n") };
}
