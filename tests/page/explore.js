// Opens the explorer in headless Chromium and takes steps in it.
//   NODE_PATH=…/node_modules node explore.js ADDRESS STEP...
// Steps: `open FRAGMENT`, `press KEYS` (Shift+ArrowRight), `type TEXT`, `click X Y` and `drag X TO Y` in the timeline, `wheel X Y DELTA` with Ctrl, `push SELECTOR`, `point SELECTOR X Y` clicks in an element,
// `wait SELECTOR`, `ready` (the editor knows the tables), `text SELECTOR`, `rows` (what the picture says), `size WIDTH THEME [FILE]`.
// Prints a line for each: what it found; after the others, the fragment of the URL. Then whatever the page wrote to the console, and requests to others.
'use strict';
const puppeteer = require('puppeteer-core');
const [address, ...steps] = process.argv.slice(2);

async function drawn(page) {
  await page.waitForFunction(() => document.documentElement.dataset.drawn !== undefined || document.querySelector('.bad') !== null);
  await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
  await page.waitForFunction(() => document.documentElement.dataset.drawn !== undefined || document.querySelector('.bad') !== null);
}

async function step(page, word, rest) {
  const words = rest.split(' ');
  const canvas = async () => page.$eval('#timeline canvas', one => { const { left, top } = one.getBoundingClientRect(); return [left, top]; });
  const keys = async text => {
    const all = text === '+' ? ['+'] : text.split('+');
    const last = all.pop();
    for (const key of all) await page.keyboard.down(key);
    await page.keyboard.press(last);
    for (const key of all.reverse()) await page.keyboard.up(key);
  };
  switch (word) {
    case 'open': await page.evaluate(fragment => { location.hash = fragment; }, rest); break;
    case 'press': await keys(rest); break;
    case 'type': await page.keyboard.type(rest); break;
    case 'click': {
      const [left, top] = await canvas();
      await page.mouse.click(left + Number(words[0]), top + Number(words[1]));
      break;
    }
    case 'drag': {
      const [left, top] = await canvas();
      await page.mouse.move(left + Number(words[0]), top + Number(words[2]));
      await page.mouse.down();
      await page.mouse.move(left + Number(words[1]), top + Number(words[2]), { steps: 4 });
      await page.mouse.up();
      break;
    }
    case 'wheel': {
      const [left, top] = await canvas();
      await page.mouse.move(left + Number(words[0]), top + Number(words[1]));
      await page.keyboard.down('Control');
      await page.mouse.wheel({ deltaY: Number(words[2]) });
      await page.keyboard.up('Control');
      break;
    }
    case 'point': {
      const [y, x, ...selector] = words.reverse();
      const { left, top } = await page.$eval(selector.reverse().join(' '), one => { one.scrollIntoView({ block: 'nearest' }); const { left, top } = one.getBoundingClientRect(); return { left, top }; });
      await page.mouse.click(left + Number(x), top + Number(y));
      break;
    }
    case 'push': await page.click(rest); break;
    case 'wait': await page.waitForSelector(rest); return 'found';
    case 'ready': await page.waitForSelector('#completion[data-ready]', { hidden: false, visible: false }); return 'ready';
    case 'text': return page.$eval(rest, one => one.innerText.replace(/\s+/g, ' ').trim());
    case 'rows': {
      await drawn(page);
      return page.$eval('#rows', one => `step ${one.dataset.step}; ${[...one.children].map(row => row.textContent).join('; ')}`);
    }
    case 'picture': return page.evaluate(() => document.documentElement.dataset.pictureMs ?? '');
    case 'size': {
      await page.setViewport({ width: Number(words[0]), height: 900 });
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: words[1] }]);
      await drawn(page);
      await new Promise(done => setTimeout(done, 200));
      if (words[2] !== undefined) await page.screenshot({ path: words[2] });
      return page.evaluate(() => `overflow ${document.documentElement.scrollWidth - innerWidth}`);
    }
    default: throw new Error(`no step ${word}`);
  }
  // The next frame has the change, and asks for what is missing.
  await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
  await drawn(page);
  return page.evaluate(() => decodeURIComponent(location.hash.slice(1)));
}

(async () => {
  const browser = await puppeteer.launch({ executablePath: '/usr/bin/chromium', headless: true, args: ['--no-sandbox', '--disable-gpu'] });
  try {
    const page = await browser.newPage();
    const { origin } = new URL(address);
    const others = [];
    page.on('console', message => others.push(`console: ${message.text()}`));
    page.on('pageerror', error => others.push(`error: ${error}`));
    page.on('request', request => {
      const url = request.url();
      if (!url.startsWith(`${origin}/`) && !url.startsWith('data:') && !url.startsWith('blob:')) others.push(`request: ${url}`);
    });
    await page.setViewport({ width: 1400, height: 900 });
    await page.goto(address);
    await drawn(page);
    for (const text of steps) {
      const [word] = text.split(' ', 1);
      console.log(await step(page, word, text.slice(word.length + 1)));
    }
    for (const line of others) console.log(line);
  } finally {
    await browser.close();
  }
})().catch(error => { console.error(error); process.exit(1); });
