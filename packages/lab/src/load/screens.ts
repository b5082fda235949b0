import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CDPSession } from 'puppeteer-core';
import { inTime } from './page-timeline.js';

const MAX_WIDTH = 480;
const JPEG_QUALITY = 70;
export const SCREENS_INDEX = 'screens.json';

/** A screenshot of the page and when it was shown, in seconds since the start of navigation. */
export interface Screen {
  readonly file: string;
  readonly seconds: number;
}

/** Takes a screenshot of the page whenever its look changes. */
export class Screens {
  readonly #taken: { file: string; epochSeconds: number }[] = [];

  private constructor(
    private readonly session: CDPSession,
    private readonly folder: string,
  ) {}

  static async start(session: CDPSession, folder: string): Promise<Screens> {
    mkdirSync(folder, { recursive: true });
    const screens = new Screens(session, folder);
    session.on('Page.screencastFrame', ({ data, metadata, sessionId }) => {
      screens.#keep(data, metadata.timestamp);
      // The browser waits for this before it sends the next one; at the end it may be gone.
      void session.send('Page.screencastFrameAck', { sessionId }).catch(() => undefined);
    });
    await session.send('Page.startScreencast', {
      format: 'jpeg',
      quality: JPEG_QUALITY,
      maxWidth: MAX_WIDTH,
    });
    return screens;
  }

  /**
   * Ends the recording and writes the index. `timeOriginMs` is the start of navigation in
   * wall-clock time.
   */
  async stop(timeOriginMs: number | undefined): Promise<void> {
    await inTime(this.session.send('Page.stopScreencast'));
    if (timeOriginMs === undefined) return;
    const screens = this.#taken
      .map(({ file, epochSeconds }): Screen => ({
        file,
        seconds: epochSeconds - timeOriginMs / 1000,
      }))
      // Earlier screenshots show the empty tab.
      .filter(({ seconds }) => seconds >= 0);
    writeFileSync(join(this.folder, SCREENS_INDEX), JSON.stringify(screens));
  }

  #keep(data: string, epochSeconds: number | undefined): void {
    if (epochSeconds === undefined) return;
    const file = `${String(this.#taken.length + 1).padStart(4, '0')}.jpg`;
    writeFileSync(join(this.folder, file), Buffer.from(data, 'base64'));
    this.#taken.push({ file, epochSeconds });
  }
}
