// Headless Chromium with a fresh profile, for all of these clients.
import puppeteer from 'puppeteer-core';

/** `executablePath`: Chromium. `flags`: additional arguments. */
export function launch(executablePath, flags) {
  return puppeteer.launch({
    executablePath,
    headless: true,
    // Chromium does not run its sandbox as root.
    args: [...(process.getuid() === 0 ? ['--no-sandbox'] : []), '--no-first-run', '--disable-gpu', ...flags],
  });
}
