// Instructions and source lines with their shares, as `annotate` prints them.

import { make } from "../dom.ts";

/** Shares in percent from which on a line is hot or warm, as in the terminal. */
const HOT = 5;
const WARM = 0.5;

/** The lines; the shaded part of the first column is the share. */
export function codeLines(lines: [number | null, string][]): HTMLElement {
  const rows = lines.map(([share, text]) => {
    const heat = share === null ? "" : share >= HOT ? "hot" : share >= WARM ? "warm" : "";
    const line = make("div", heat === "" ? {} : { class: heat }, text === "" ? " " : text);
    if (share !== null && share > 0) line.style.backgroundSize = `${Math.min(100, share).toFixed(2)}% 100%`;
    return line;
  });
  return make("pre", { class: "code", tabindex: "0", "aria-label": "Instructions and source lines with their shares" }, ...rows);
}
