// Opens a page in headless Chromium and does what it is told.
//   NODE_PATH=…/node_modules node browse.js PAGE STEP...
// Steps: `open FRAGMENT`, `focus SELECTOR`, `press KEYS` (Shift+ArrowRight), `type TEXT`, `text SELECTOR`, `size WIDTH THEME [FILE]`, `print [FILE]`, `back`, `pause`.
// Prints a line for each: what it found; after the others, the fragment of the URL. Then whatever the page wrote to the console or requested.
'use strict';
const puppeteer = require('puppeteer-core');
const [file, ...steps] = process.argv.slice(2);

async function drawn(page) {
  await page.waitForFunction(() => document.documentElement.dataset.drawn !== undefined || document.querySelector('main > .bad'));
  await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
}

/** Width that a page needs beyond the window, and what is too wide. */
function overflow() {
  const wide = [...document.querySelectorAll('main *')].filter(one =>
    one.getBoundingClientRect().right > innerWidth + 1 && one.closest('.table, .code') === null && getComputedStyle(one).display !== 'none');
  const name = one => `${one.tagName.toLowerCase()}${one.id ? `#${one.id}` : ''} in #${one.closest('section')?.id}`;
  return `overflow ${document.documentElement.scrollWidth - innerWidth > 0 ? 'page' : wide.length > 0 ? name(wide[0]) : 'none'}`;
}

/** What makes no sense on paper: controls, and tables of which only a part is seen. */
function printed() {
  const seen = one => one.getClientRects().length > 0;
  const controls = [...document.querySelectorAll('main button, main input, main select, footer .keys')].filter(one =>
    seen(one) && one.closest('th') === null && one.closest('td') === null && !(one.parentElement?.tagName === 'LI' && one.parentElement.children.length === 1));
  const cut = [...document.querySelectorAll('.table, .scroller')].filter(one => seen(one) && one.scrollHeight > one.clientHeight + 1);
  const pictures = [...document.querySelectorAll('canvas')].filter(seen).length;
  const hidden = [...document.querySelectorAll('.legend i')].filter(one => !seen(one)).length;
  return `controls ${controls.map(one => one.textContent).join(', ') || 'none'}; cut ${cut.length}; pictures ${pictures}; hidden legends ${hidden}`;
}

async function step(page, word, rest) {
  switch (word) {
    case 'open': await page.evaluate(fragment => { location.hash = fragment; }, rest); break;
    case 'focus': await page.focus(rest); break;
    case 'back': await page.goBack(); break;
    // Changes that follow each other faster are one step of the history.
    case 'pause': await new Promise(done => setTimeout(done, 900)); break;
    case 'type': await page.keyboard.type(rest); break;
    case 'press': {
      const keys = rest === '+' ? ['+'] : rest.split('+');
      const last = keys.pop();
      for (const key of keys) await page.keyboard.down(key);
      await page.keyboard.press(last);
      for (const key of keys.reverse()) await page.keyboard.up(key);
      break;
    }
    case 'text': return page.$eval(rest, one => one.innerText.replace(/\s+/g, ' ').trim());
    case 'size': {
      const [width, theme, image] = rest.split(' ');
      await page.setViewport({ width: Number(width), height: 900 });
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme }]);
      await drawn(page);
      const found = await page.evaluate(overflow);
      if (image !== undefined) await page.screenshot({ path: image, fullPage: true });
      return found;
    }
    case 'print': {
      await page.emulateMediaType('print');
      await drawn(page);
      const found = await page.evaluate(printed);
      if (rest !== '') await page.pdf({ path: rest, format: 'a4' });
      await page.emulateMediaType(null);
      return found;
    }
    default: throw new Error(`no step ${word}`);
  }
  await drawn(page);
  return page.evaluate(() => decodeURIComponent(location.hash.slice(1)));
}

(async () => {
  const browser = await puppeteer.launch({
    executablePath: '/usr/bin/chromium', headless: true, args: ['--no-sandbox', '--disable-gpu'],
  });
  try {
    const page = await browser.newPage();
    const told = [];
    page.on('console', message => told.push(`console: ${message.text()}`));
    page.on('pageerror', error => told.push(`error: ${error}`));
    page.on('request', request => {
      if (request.url().split('#')[0] !== `file://${file}`) told.push(`request: ${request.url()}`);
    });
    await page.setViewport({ width: 1400, height: 900 });
    await page.goto(`file://${file}`);
    await drawn(page);
    for (const text of steps) {
      const [word] = text.split(' ', 1);
      console.log(await step(page, word, text.slice(word.length + 1)));
    }
    for (const line of told) console.log(line);
  } finally {
    await browser.close();
  }
})().catch(error => { console.error(error); process.exit(1); });
