// Loads a page in headless Chromium and prints the browser's data about each request, as one JSON object.
//
// usage: node visit.mjs '{"url": …, "flags": […], "loads": 1, "chromium": path, "awaitsResult": false}'
//
// With `awaitsResult` the page sets `globalThis.result` when it is done, possibly after the network is idle.
// Each load is a navigation in the same tab of the same browser, with the cache off.
import { launch } from './launch.mjs';

const { url, flags, loads = 1, chromium, awaitsResult = false, timeoutMs = 60_000 } = JSON.parse(process.argv[2]);

const browser = await launch(chromium, flags);
try {
  const page = await browser.newPage();
  await page.setCacheEnabled(false);
  const session = await page.createCDPSession();
  await session.send('Network.enable');

  let requests = new Map();
  const errors = [];
  session.on('Network.requestWillBeSent', ({ requestId, request }) => {
    requests.set(requestId, { url: request.url, method: request.method });
  });
  session.on('Network.responseReceived', ({ requestId, response }) => {
    Object.assign(requests.get(requestId) ?? {}, {
      status: response.status,
      protocol: response.protocol,
      connection: response.connectionId,
      mimeType: response.mimeType,
    });
  });
  session.on('Network.loadingFinished', ({ requestId }) => {
    Object.assign(requests.get(requestId) ?? {}, { finished: true });
  });
  session.on('Network.loadingFailed', ({ requestId, errorText }) => {
    Object.assign(requests.get(requestId) ?? {}, { error: errorText });
  });
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error') errors.push(message.text());
  });

  const visits = [];
  for (let load = 0; load < loads; load++) {
    requests = new Map();
    await page.goto(url, { waitUntil: 'networkidle0', timeout: timeoutMs });
    if (awaitsResult) await page.waitForFunction(() => globalThis.result !== undefined, { timeout: timeoutMs });
    const seen = await page.evaluate(() => ({
      title: document.title,
      protocol: performance.getEntriesByType('navigation')[0].nextHopProtocol,
      result: globalThis.result ?? null,
      images: [...document.images].map((image) => ({ complete: image.complete, width: image.naturalWidth })),
    }));
    visits.push({ ...seen, requests: [...requests.values()].filter(({ url }) => url.startsWith('http')) });
  }
  process.stdout.write(JSON.stringify({ version: await browser.version(), visits, errors }) + '\n');
} finally {
  await browser.close();
}
