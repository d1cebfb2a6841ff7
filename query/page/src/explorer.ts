// The explorer: a timeline of a trace, details, reports on a selection, SQL. It asks the server that it came from, and nobody else.

import { Tip, button, make } from "./dom.ts";
import { counted, duration, harmless } from "./format.ts";
import { type Meta, type TrackList, get, message } from "./explorer/api.ts";
import { Drawer } from "./explorer/drawer.ts";
import type { Counter } from "./lines.ts";
import { Timeline } from "./explorer/timeline.ts";
import { View } from "./explorer/view.ts";

const KEYS: [string, string][] = [
  ["w, s or +, −", "zoom in and out; Ctrl+wheel, or the wheel over the ruler, around the pointer"],
  ["a, d or ←, →", "pan; Shift+drag, Shift+wheel"],
  ["↑, ↓, Page Up, Page Down", "scroll the rows"],
  ["drag", "select a time"],
  ["f", "show the selection; again, everything"],
  ["0", "show everything"],
  ["click", "details of an event; at its name: select a thread (Ctrl: several); open or close a group"],
  ["m", "mark the time at the pointer; again, measure the distance"],
  ["p", "pin the row at the pointer, or the selected threads, above the others; again, unpin"],
  ["b", "keep the selection, or what is in view, to compare others with it"],
  ["/", "filter rows by name, mark calls: text or a regular expression"],
  ["e", "SQL; Ctrl+Enter runs it"],
  ["[, ]", "previous and next trace"],
  ["Esc", "close, then clear the selection"],
  ["?", "these keys"],
];

/** Time between two looks at a recording that still runs. */
const FOLLOW_MS = 2000;

function start(meta: Meta): void {
  const view = new View(meta);
  const tip = new Tip();
  const drawer = new Drawer(view, tip);
  const timeline = new Timeline(view, tip, (place) => drawer.showPlace(place));
  drawer.onWakes = (wakes) => timeline.setWakes(wakes);
  const filter = make("input", { type: "search", placeholder: "Filter rows (/)", "aria-label": "Filter rows", id: "filter" });
  const choice = make("select", { "aria-label": "Trace", id: "trace" }, ...meta.traces.map((trace, index) => make("option", { value: String(index) }, harmless(trace.name))));
  const facts = make("span", { class: "quiet", id: "facts" });
  const help = make("dialog", { id: "help" }, make("h2", {}, "Keys"),
    make("table", {}, make("tbody", {}, ...KEYS.map(([key, about]) => make("tr", {}, make("th", { scope: "row", class: "name" }, key), make("td", { class: "name" }, about))))),
    button("Close", "Close (Esc)", () => help.close()));
  const everything = () => view.show(0, view.trace.length);
  const head = make("header", { id: "head" }, make("h1", {}, "perfquet"), meta.traces.length > 1 ? choice : make("strong", { class: "title" }, harmless(meta.traces[0]?.name ?? "")), facts,
    make("span", { class: "tools" }, make("span", { class: "tabs" }, button("−", "Zoom out (s)", () => view.zoom(2, 0.5)), button("+", "Zoom in (w)", () => view.zoom(0.5, 0.5)), button("all", "Show everything (0)", everything)),
      filter, button("SQL", "SQL (e)", () => drawer.open(view.now.tab === "sql" ? "" : "sql")), button("?", "Keys (?)", () => help.showModal())));
  document.body.append(make("main", {}, head, timeline.element, make("footer", {}, timeline.status, timeline.legend), drawer.element), help, tip.element);

  let opened = -1;
  let isFirst = true;
  const open = async (trace: number, grows = false) => {
    opened = trace;
    if (!grows) timeline.set(null);
    const { name, length, recorded, events, calls, is_complete: isComplete } = meta.traces[trace]!;
    choice.value = String(trace);
    document.title = `${harmless(name)} · perfquet`;
    facts.classList.toggle("live", !isComplete);
    const counts = [...(events > 0 || calls === 0 ? [counted(events, "event")] : []), ...(calls > 0 ? [counted(calls, "call")] : [])];
    // Of a recording whose first part is not complete, nothing is known.
    const known = isComplete || events > 0 || calls > 0 ? [duration(recorded ?? length), ...counts] : [];
    facts.textContent = [...known, ...(isComplete ? [] : ["still being recorded"])].join(" · ");
    try {
      const [list, { counters }] = await Promise.all([get<TrackList>("tracks", { trace }), get<{ counters: Counter[] }>("counters", { trace })]);
      if (opened !== trace) return;
      drawer.setEvents(list.events.map((event) => event.name.replace(".", ":")), list.sampled);
      timeline.set(list, counters, grows);
      // The rows of a profile of one program leave most of the page empty.
      if (!grows && isFirst && location.hash === "" && list.samples && timeline.isLow) drawer.open("selection");
      isFirst = false;
    } catch (error) {
      timeline.status.textContent = message(error);
      timeline.status.classList.add("bad");
    }
  };
  const update = () => {
    if (opened !== view.now.trace) void open(view.now.trace);
    if (document.activeElement !== filter) filter.value = view.now.filter;
    tip.hide();
    drawer.update();
    timeline.draw();
  };
  view.onChange(update);
  // A recording that still runs: the server opens it again when it has grown.
  const follow = async () => {
    const { traces } = await get<Meta>("meta", {});
    const { trace, from, to } = view.now;
    const [before, now] = [meta.traces[trace]!, traces[trace]!];
    const hasGrown = before.rows !== now.rows || before.length !== now.length || before.is_complete !== now.is_complete;
    meta.traces.splice(0, meta.traces.length, ...traces);
    if (hasGrown) {
      // Whoever sees the end, sees the new one.
      if (to >= before.length) view.show(from === 0 ? 0 : from + now.length - before.length, Math.max(now.length, to - from));
      await open(trace, true);
      update();
    }
  };
  const following = () => {
    if (meta.traces.every((trace) => trace.is_complete)) return;
    setTimeout(() => void follow().then(following, following), FOLLOW_MS);
  };
  following();
  // The server may end with its last tab. A page that is left may come back as it was.
  const tab = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const tell = (open: 0 | 1) => navigator.sendBeacon(`/api/tab?id=${tab}&open=${open}`);
  window.addEventListener("pagehide", () => tell(0));
  window.addEventListener("pageshow", (event) => event.persisted && tell(1));
  tell(1);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    timeline.draw();
    drawer.redraw();
  });
  choice.addEventListener("change", () => view.open(Number(choice.value)));
  filter.addEventListener("input", () => view.change({ filter: filter.value }));
  filter.addEventListener("keydown", (event) => {
    if (event.key === "Escape") view.change({ filter: "" });
    if (event.key === "Escape" || event.key === "Enter") timeline.focus();
    if (event.key === "Escape") filter.value = "";
    event.stopPropagation();
  });
  const scroll = (part: number) => (timeline.element.scrollTop += part * timeline.element.clientHeight);
  const other = (step: number) => {
    const next = view.now.trace + step;
    if (meta.traces[next] !== undefined) view.open(next);
  };
  const actions: Record<string, () => void> = {
    w: () => view.zoom(1 / 1.6, 0.5), "+": () => view.zoom(1 / 1.6, 0.5), "=": () => view.zoom(1 / 1.6, 0.5), s: () => view.zoom(1.6, 0.5), "-": () => view.zoom(1.6, 0.5),
    a: () => view.pan(-0.25), d: () => view.pan(0.25), ArrowLeft: () => view.pan(-0.1), ArrowRight: () => view.pan(0.1),
    ArrowUp: () => scroll(-0.15), ArrowDown: () => scroll(0.15), PageUp: () => scroll(-0.9), PageDown: () => scroll(0.9), 0: everything,
    f: () => {
      const { selection, from, to } = view.now;
      if (selection === null || (selection[0] === from && selection[1] === to)) everything();
      else view.show(...selection);
    },
    m: () => timeline.mark(), p: () => timeline.pin(), b: () => drawer.keep(),
    "/": () => filter.select(), e: () => drawer.open("sql"), "[": () => other(-1), "]": () => other(1), "?": () => help.showModal(),
    Escape: () => (view.now.tab !== "" ? drawer.open("") : view.change({ selection: null, tids: [], marks: [], filter: "" })),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const { target } = event;
    if (target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return;
    const action = actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    tip.hide();
    action();
  });
  update();
  timeline.focus();
}

get<Meta>("meta", {}).then(start, (error: unknown) => {
  document.body.append(make("p", { class: "bad" }, message(error)));
});
