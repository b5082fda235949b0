// A headless browser with a fresh profile.
//
// Options: {"browser": "chromium", "program": path, "flags": […]} or {"browser": "firefox", "program": path, "preferences": {…}}.
import puppeteer from 'puppeteer-core';
import { launch as launchChromium } from '../chromium/launch.mjs';

export function launch({ browser, program, flags, preferences }) {
  if (browser === 'chromium') return launchChromium(program, flags);
  return puppeteer.launch({
    browser,
    executablePath: program,
    headless: true,
    acceptInsecureCerts: true,
    extraPrefsFirefox: preferences,
  });
}
