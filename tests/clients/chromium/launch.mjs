// Headless Chromium with a fresh profile, as all of these clients want it.
import puppeteer from 'puppeteer-core';

/** `executablePath`: Chromium. `flags`: more of its arguments. */
export function launch(executablePath, flags) {
  return puppeteer.launch({
    executablePath,
    headless: true,
    // Chromium refuses its sandbox to root.
    args: [...(process.getuid() === 0 ? ['--no-sandbox'] : []), '--no-first-run', '--disable-gpu', ...flags],
  });
}
