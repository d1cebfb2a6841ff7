// The report page: unpacks its data, makes the panels, and keeps them in step with the selection.

import { choice, taken } from "./axes.ts";
import { type Data, type Trace, read } from "./data.ts";
import { Changes } from "./changes.ts";
import { Courses } from "./courses.ts";
import { Tip, button, copied, make } from "./dom.ts";
import { Findings } from "./findings.ts";
import { Flame } from "./flame.ts";
import { amount, cut, duration, grouped, percent } from "./format.ts";
import { cpus } from "./rates.ts";
import { Listings } from "./listings.ts";
import { Stacks } from "./stacks.ts";
import { State, exactTime } from "./state.ts";
import { Aggregates, Counters, Events, totals } from "./summaries.ts";
import { Durations, Functions, Slowest, Threads } from "./tables.ts";
import { Time } from "./time.ts";
import { Tracks } from "./tracks.ts";

interface Shown {
  element: HTMLElement;
  update: () => void;
  /** Shows where the picture of stacks is zoomed, and nothing else has changed. */
  zoomed?: () => void;
  /** Whether it shows times within a slot. */
  hasSpan?: boolean;
}

function traceHead(trace: Trace, isOne: boolean): HTMLElement {
  const fact = (name: string) => trace.facts.find(([key]) => key === name)?.[1];
  const count = fact("cpus");
  const named = ["hostname", "host", "os_release", "arch", "cpu_model"].map(fact);
  const host = [...named, count === undefined ? undefined : `${count} ${count === "1" ? "CPU" : "CPUs"}`].filter((text) => text !== undefined);
  const lines: (HTMLElement | null)[] = [
    isOne ? null : make("h3", {}, trace.name),
    make("p", {}, [trace.recorded, ...host].filter((text) => text !== null).join(" · ")),
  ];
  if (trace.placement !== undefined) lines.push(make("p", { class: "placement" }, trace.placement));
  const command = fact("command_line");
  if (command !== undefined) lines.push(make("p", {}, make("code", {}, command)));
  const counted = (name: string, pairs: [string, number | null][]) => {
    if (pairs.length === 0) return;
    const all = pairs.map(([reason, count]) => `${count === null ? "some" : grouped(count)} ${reason}`).join("; ");
    lines.push(make("p", { class: "bad" }, `${name}: ${all}`));
  };
  counted("Lost", trace.losses);
  // Nothing is lost when the kernel samples less often, or a recording pauses.
  if ((trace.gaps ?? []).length > 0) {
    lines.push(make("p", {}, `Recorded less: ${trace.gaps!.map(([reason, count]) => `${count === null ? "" : `${grouped(count)} × `}${reason}`).join("; ")}`));
  }
  counted("Not readable", trace.problems);
  if (trace.incomplete !== null) lines.push(make("p", { class: "bad" }, trace.incomplete));
  lines.push(make("details", {}, make("summary", {}, "All facts"), make("pre", {}, trace.info)));
  return make("div", { class: "trace" }, ...lines);
}

/** The whole trace in one line: length, use of the CPUs, what used them most. */
function summary(data: Data, stacks: Stacks[]): string {
  const parts = [...(data.traces.length === 1 && data.traces[0]!.length !== null ? [data.traces[0]!.length] : [])];
  data.profiles.slice(0, 3).forEach((profile, index) => {
    if (profile.kind === "difference") return;
    const { boxes, samples, idle } = stacks[index]!.withoutIdle(data.threads);
    const all = boxes.total[0]!;
    const host = cpus(data, profile.trace);
    const isClock = profile.unit === "ns" && profile.kind === "event" && !profile.is_off_cpu;
    // Of several traces, each has its own length.
    const length = data.traces[profile.trace ?? 0]?.duration ?? data.length;
    const share = isClock && host !== null && length !== undefined && length > 0 ? `, ${percent(all, host * length)} of ${host} CPUs` : "";
    // Every hit of a tracepoint has the function that contains it.
    const lines = stacks[index]!.functions(boxes).filter((line) => line.group > 0 && !line.name.startsWith("["));
    const [hottest] = lines.sort((a, b) => b.own - a.own);
    const top = hottest === undefined || profile.is_off_cpu || profile.is_count || all === 0 ? "" : `, most in ${cut(hottest.name, 60)} (${percent(hottest.own, all)})`;
    parts.push(`${amount(Math.round(all), profile.unit)} of ${profile.name}${share}${profile.is_count || samples === 0 ? "" : ` in ${grouped(samples)} ${profile.is_off_cpu ? "periods" : "samples"}`}${idle === 0 ? "" : `, beside ${amount(Math.round(idle), profile.unit)} of idle CPUs`}${top}`);
  });
  if (data.calls !== null) {
    const [first] = data.calls.rows;
    parts.push(`${grouped(data.calls.count)} calls${first === undefined || first.total === null ? "" : `, the longest total in ${cut(first.function, 60)} (${duration(first.total)})`}`);
  }
  return [...parts, ...totals(data)].join(" · ");
}

function copyLink(): HTMLButtonElement {
  const copy = button("copy link", "Copy the address of this selection", () => copied(location.href, () => {
    copy.textContent = "copied";
    setTimeout(() => (copy.textContent = "copy link"), 1200);
  }));
  return copy;
}

function head(data: Data, stacks: Stacks[]): HTMLElement {
  const theme = button("light / dark", "Switch between light and dark", () => {
    const root = document.documentElement;
    const isDark = root.dataset["theme"] === "dark" || (root.dataset["theme"] === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
    root.dataset["theme"] = isDark ? "light" : "dark";
    window.dispatchEvent(new Event("resize"));
  });
  const parts: (HTMLElement | null)[] = [
    make("header", {}, make("h1", {}, data.title), make("div", { class: "tools" }, copyLink(), theme, button("print", "Print the page", () => print()))),
    data.note == null || data.note === "" ? null : make("p", { class: "sender" }, data.note),
    make("p", { class: "summary" }, summary(data, stacks)),
    choice(data),
    ...data.traces.map((trace) => traceHead(trace, data.traces.length === 1 && data.axes === undefined)),
    data.condition === null ? null : make("p", {}, `Only: ${data.condition}`),
  ];
  if (data.omitted.length > 0) parts.push(make("p", {}, `Left out: ${data.omitted.join("; ")}`));
  return make("section", { id: "head" }, ...parts);
}

/** The selection in words, the search, and how to leave both. */
function toolbar(state: State): Shown {
  const search = make("input", { type: "search", placeholder: "Search: /", "aria-label": "Search functions; a regular expression" });
  search.addEventListener("input", () => state.change({ query: search.value }));
  const words = make("span", { class: "selection", "aria-live": "polite" });
  const clear = button("clear", "Select everything (0)", () => state.change({ time: null, threads: new Set() }));
  const compare = button("compare with…", "Compare the next selected time with this one", () => {
    const { time, base } = state.selection;
    state.change(base === null ? { base: time, time: null } : { base: null });
  });
  const element = make("div", { id: "bar" }, words, clear, compare, search);
  return {
    element,
    update: () => {
      const { threads, query } = state.selection;
      if (search.value !== query) search.value = query;
      const names = [...threads].slice(0, 3).map((index) => {
        const [tid, , comm] = state.data.threads[index]!;
        return `${comm ?? "[unknown]"} (${tid})`;
      });
      const more = threads.size > 3 ? [`${threads.size - 3} more`] : [];
      const time = state.timeText();
      const { base } = state.selection;
      compare.hidden = state.selection.time === null && base === null;
      compare.textContent = base === null ? "compare with…" : "end the comparison";
      const against = base === null ? "" : ` · compared with ${exactTime(base[0] * state.slot)}..${exactTime(base[1] * state.slot)}${time === null ? ": select another time" : ""}`;
      words.textContent = state.data.slot === undefined ? "Two traces compared as a whole: neither time nor threads are selected (report --timeline has both on one time axis)"
        : `${time ?? "all time"} · ${threads.size === 0 ? "all threads" : [...names, ...more].join(", ")}${against}`;
      clear.hidden = time === null && threads.size === 0;
    },
  };
}

function keys(state: State): void {
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const search = document.querySelector<HTMLInputElement>("#bar input")!;
    const isInside = document.activeElement === search;
    if (event.key === "/" && !isInside) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "Escape") {
      if (state.selection.query !== "") state.change({ query: "" });
      else if (isInside) search.blur();
      else if (state.selection.zoom > 0) state.change({ zoom: 0 });
      else if (state.selection.span !== null) state.change({ span: null });
      else state.change({ time: null, threads: new Set() });
    } else if (event.key === "0" && !isInside) {
      state.change({ time: null, threads: new Set(), zoom: 0 });
    } else if (event.key === "Enter" && isInside) {
      search.blur();
    }
  });
}

/** Where one clicked: the panel stays where it is in the window, whatever changes above it. Returns what puts it there. */
let clicked: Element | null = null;
function anchor(): () => void {
  const panel = clicked?.isConnected === true ? clicked : null;
  const before = panel?.getBoundingClientRect().top ?? 0;
  return () => {
    const moved = panel === null ? 0 : panel.getBoundingClientRect().top - before;
    if (Math.abs(moved) > 0.5) scrollBy(0, moved);
  };
}

async function main(): Promise<void> {
  const page = document.getElementById("page")!;
  const data = await read(taken());
  const state = new State(data);
  const tip = new Tip();
  const stacks = data.profiles.map((profile) => new Stacks(profile));
  const shown: Shown[] = [new Findings(data, state, stacks), toolbar(state)];
  const hasTime = data.slot !== undefined && 
    [...data.profiles.map((profile) => profile.cells), data.calls?.cells].some((cells) => cells?.slot.some((slot) => slot >= 0) ?? false);
  if (Counters.has(data)) shown.push(new Counters(data, state));
  if (Aggregates.has(data)) shown.push(new Aggregates(data, state));
  if (hasTime) shown.push(new Time(data, state, tip));
  if (Tracks.has(data)) shown.push(new Tracks(data, state, tip));
  if (Courses.has(data)) shown.push(new Courses(data, state, tip));
  if (data.threads.some(([tid]) => tid >= 0)) shown.push(new Threads(data, state));
  if (Changes.has(data)) shown.push(new Changes(data, state));
  const pair = make("div", { class: "pair" });
  // The tabs of the panel choose among several events, also where none of them has stacks.
  if (data.profiles.length > 1 || stacks.some((one) => one.hasBoxes)) {
    const both = [new Flame(data, state, stacks, tip), new Functions(data, state, stacks)] as const;
    pair.append(...both.map((one) => one.element));
    // Callers and callees are beside the table in which one chooses functions.
    const arrange = { element: pair, update: () => { pair.classList.toggle("beside", state.selection.view === "sandwich"); } };
    shown.push(arrange, ...both);
  }
  if (Listings.has(data)) shown.push(new Listings(data, state));
  if (data.calls !== null) shown.push(new Durations(data.calls, data, state, tip), new Slowest(data.calls, data, state));
  if (Events.has(data)) shown.push(new Events(data, state));
  const help = make("span", { class: "keys" }, " · keys: / search, Esc back, 0 everything; in pictures: arrows, Enter, o callers");
  const about = make("footer", {}, `perfquet-query ${data.version}`, help);
  const empty = shown.length === 2 ? [make("p", { class: "note" }, "The trace has no rows to show.")] : [];
  page.append(head(data, stacks), ...shown.map((one) => one.element).filter((element) => !pair.contains(element) || element === pair), ...empty, about, tip.element);
  const update = () => { for (const one of shown) one.update(); };
  let [last, lastZoom, lastSpan] = ["", "", ""];
  state.onChange(() => {
    const { time, span, threads, query, profile, view, focus, zoom } = state.selection;
    const now = JSON.stringify([time, state.selection.base, [...threads], query, profile, view, focus, state.selection.isFolded]);
    const [nowZoom, nowSpan] = [String(zoom), JSON.stringify(span)];
    const hold = anchor();
    for (const one of shown) {
      if (now !== last || (one.hasSpan === true && nowSpan !== lastSpan)) one.update();
      else if (nowZoom !== lastZoom) one.zoomed?.();
    }
    [last, lastZoom, lastSpan] = [now, nowZoom, nowSpan];
    hold();
  });
  keys(state);
  const remember = (event: Event) => { clicked = event.target instanceof Element ? event.target.closest("main section") : null; };
  for (const kind of ["pointerdown", "keydown"]) window.addEventListener(kind, remember, { capture: true });
  let pending = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(update);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
  // Paper is light.
  const root = document.documentElement;
  let theme: string | undefined;
  const light = () => {
    theme = root.dataset["theme"];
    root.dataset["theme"] = "light";
    update();
  };
  window.addEventListener("beforeprint", light);
  window.addEventListener("afterprint", () => {
    if (theme === undefined) delete root.dataset["theme"];
    else root.dataset["theme"] = theme;
    update();
  });
  update();
  // Milliseconds until everything was drawn, for tests.
  document.documentElement.dataset["drawn"] = performance.now().toFixed(0);
}

main().catch((error: unknown) => {
  document.getElementById("page")!.append(make("p", { class: "bad" }, `This page cannot be shown: ${String(error)}`));
});
