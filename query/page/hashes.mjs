// Writes the hashes that allow the script and the style of a page, for its Content-Security-Policy.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

const line = (file) => `${file} sha256-${createHash("sha256").update(readFileSync(`dist/${file}`)).digest("base64")}\n`;
writeFileSync("dist/hashes.txt", ["report.js", "report.css"].map(line).join(""));
