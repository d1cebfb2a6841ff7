// Numbers and names as the query tool writes them.

/** `1,234,567` */
export function grouped(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}

/** `1 thread`, `2,000 threads` */
export function counted(value: number, noun: string): string {
  return `${grouped(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** Nanoseconds in the unit that fits: `1.234 ms`. */
export function duration(ns: number): string {
  const units: [string, number][] = [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9]];
  for (const [name, unit] of units) {
    const shown = Math.round((ns / unit) * 1e3) / 1e3;
    if (Math.abs(shown) < 1000 || name === "s") {
      return unit === 1 && Number.isInteger(ns) ? `${ns} ns` : `${(ns / unit).toFixed(3)} ${name}`;
    }
  }
  return `${ns} ns`;
}

/** A weight with its unit. */
export function amount(weight: number, unit: string): string {
  if (unit === "ns") return duration(weight);
  return unit === "events" && weight === 1 ? "1 event" : `${grouped(weight)} ${unit}`;
}

/** Two digits behind the point, but never a zero for something. */
export function percent(part: number, all: number): string {
  const share = all > 0 ? (part / all) * 100 : 0;
  return share > 0 && share < 0.005 ? "<0.01%" : `${share.toFixed(2)}%`;
}

/** Control characters and changes of the direction of writing as `\\u{202e}`, as in the terminal. */
export function harmless(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, (letter) => `\\u{${letter.charCodeAt(0).toString(16)}}`);
}

/** Cut at the end, so that it has at most this many letters. */
export function cut(name: string, letters: number): string {
  if (name.length <= letters) return name;
  const room = Math.max(0, Math.floor(letters) - 1);
  return [...name.slice(0, room)].join("") + "…";
}

/** As {@link cut}, but the number at the end remains: `sched-m… (4711)`. */
export function cutBeforeNumber(name: string, letters: number): string {
  const number = / \(?\d+\)?$/.exec(name)?.[0] ?? "";
  if (name.length <= letters || number.length + 2 > letters) return cut(name, letters);
  return cut(name.slice(0, name.length - number.length), letters - number.length) + number;
}

/** Places of the `::` between the parts of a name, outside of brackets. A closure is part of its function's name. */
function separators(name: string): number[] {
  const found: number[] = [];
  let depth = 0;
  for (let at = 0; at < name.length; at++) {
    const letter = name[at]!;
    if ("<({[".includes(letter)) depth++;
    else if (letter === ">" && name[at - 1] === "-") continue;
    else if (">)}]".includes(letter)) depth--;
    else if (letter === ":" && name[at + 1] === ":" && depth === 0 && at + 2 < name.length && name[at + 2] !== "{") found.push(at);
  }
  return found;
}

/** A name in few letters. Of a path, the last part remains, since many functions share its beginning: `…::execute_query`. */
export function shortened(name: string, letters: number): string {
  if (name.length <= letters) return name;
  const places = separators(name).filter((at) => at > 0);
  const last = places[places.length - 1];
  if (last === undefined) return cut(name, letters);
  // As many modules as there is room for.
  const fitting = places.find((at) => name.length - at < letters);
  return fitting === undefined ? cut(name.slice(last + 2), letters) : `…${name.slice(fitting)}`;
}

/** Lines of at most this many letters. */
export function wrapped(text: string, letters: number, lines: number): string[] {
  const found: string[] = [];
  for (let at = 0; at < text.length && found.length < lines; at += letters) {
    found.push(text.slice(at, at + letters));
  }
  if (text.length > letters * lines) found[lines - 1] = cut(found[lines - 1] + "xx", letters);
  return found;
}

/** The expression of a search: a regular expression, else the very text; ignores case. */
export function pattern(text: string): RegExp | null {
  if (text === "") return null;
  try {
    return new RegExp(text, "iu");
  } catch {
    return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "iu");
  }
}

/** A word as a shell reads it: names of traces may have anything in them. */
export function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
