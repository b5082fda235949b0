// Runs a headless browser with one tab and executes commands from its input, one line of JSON each.
//
// usage: node session.mjs OPTIONS (see launch.mjs)
//
// | command | response |
// |---|---|
// | (at the start) | {"version": …} |
// | {"visit": url} | {} once the page and its subresources are loaded |
// | {"evaluate": expression} | {"value": …}: the value of the expression in the page; a promise is awaited |
//
// The response to a failed command is {"error": …}. The browser is closed at the end of the input.
import { createInterface } from 'node:readline';
import { launch } from './launch.mjs';

const { timeoutMs = 90_000, ...options } = JSON.parse(process.argv[2]);

const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');

const browser = await launch(options);
try {
  const page = await browser.newPage();
  say({ version: await browser.version() });
  for await (const line of createInterface({ input: process.stdin })) {
    const { visit, evaluate } = JSON.parse(line);
    try {
      if (visit !== undefined) {
        await page.goto(visit, { waitUntil: 'load', timeout: timeoutMs });
        say({});
      } else {
        say({ value: (await page.evaluate(evaluate)) ?? null });
      }
    } catch (error) {
      say({ error: String(error) });
    }
  }
} finally {
  await browser.close();
}
