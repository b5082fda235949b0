import type { Browser } from 'puppeteer-core';

/**
 * A page that has what most pages have: text, style, a drawing and a script that does some work. It is all in its own URL: no
 * connection, no session, nothing in the cache, and no host that anything could be remembered of.
 */
const PAGE = `<!doctype html><title>warm</title>
<style>body{font:16px/1.4 sans-serif;margin:2em}p{columns:2}.box{width:600px;height:200px;background:linear-gradient(#246,#8ac)}</style>
<h1>Before the load</h1><div class="box"></div><canvas width="300" height="150"></canvas>
${'<p>Words of different length that have to be shaped, measured, broken into lines and drawn.</p>'.repeat(40)}
<script>
const context = document.querySelector('canvas').getContext('2d');
for (let at = 0; at < 300; at++) context.fillRect(at, (at * at) % 150, 2, 2);
const image = new Image();
image.onload = () => document.body.append(image);
image.src = document.querySelector('canvas').toDataURL();
let sum = 0;
for (let at = 0; at < 2e5; at++) sum += Math.sqrt(at);
document.title += sum;
</script>`;

/** Shows a page that shares nothing with the one to come, so that starting the browser is not part of the load's time. */
export async function warm(browser: Browser): Promise<void> {
  const page = await browser.newPage();
  await page.goto(`data:text/html;charset=utf-8,${encodeURIComponent(PAGE)}`, { waitUntil: 'load' });
  // Two frames: by then one has been drawn.
  await page.evaluate(
    'new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(undefined))))',
  );
  await page.close();
}
