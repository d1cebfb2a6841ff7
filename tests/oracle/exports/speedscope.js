// Loads profiles into speedscope, out of npm's package, in headless Chromium.
//   NODE_PATH=…/node_modules node speedscope.js FILE...
// Prints a line for each: `loaded` or `refused`, with the page's errors.
'use strict';
const fs = require('fs'), os = require('os'), path = require('path');
const puppeteer = require('puppeteer-core');
const release = path.join(path.dirname(require.resolve('speedscope/package.json')), 'dist', 'release');

async function load(browser, file, script) {
  const errors = [];
  const page = await browser.newPage();
  page.on('pageerror', error => errors.push(String(error)));
  page.on('console', async message => {
    if (message.type() === 'error') errors.push(message.text());
    for (const argument of message.args()) {
      const text = await argument.evaluate(value => value instanceof Error ? String(value) : null).catch(() => null);
      if (text) errors.push(text);
    }
  });
  const encoded = fs.readFileSync(file).toString('base64');
  const name = JSON.stringify(path.basename(file));
  fs.writeFileSync(script, `speedscope.loadFileFromBase64(${name}, "${encoded}")`);
  await page.goto(`file://${release}/index.html#localProfilePath=${script}`);
  const settled = () => / - speedscope$/.test(document.title) || /Something went wrong/.test(document.body.innerText);
  await page.waitForFunction(settled, { timeout: 60000 }).catch(() => errors.push('no answer'));
  const isLoaded = await page.evaluate(() => / - speedscope$/.test(document.title));
  await page.close();
  return isLoaded ? 'loaded' : `refused: ${errors.join(' | ')}`;
}

(async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'speedscope-'));
  const browser = await puppeteer.launch({
    executablePath: '/usr/bin/chromium', headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--allow-file-access-from-files'],
  });
  try {
    for (const file of process.argv.slice(2)) {
      console.log(await load(browser, file, path.join(folder, 'profile.js')));
    }
  } finally {
    await browser.close();
    fs.rmSync(folder, { recursive: true });
  }
})().catch(error => { console.error(error); process.exit(1); });
