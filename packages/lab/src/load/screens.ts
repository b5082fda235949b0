import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CDPSession } from 'puppeteer-core';
import { inTime } from './timeline.js';

const MAX_WIDTH = 480;
const JPEG_QUALITY = 70;
export const SCREENS_INDEX = 'screens.json';

/** A picture of the page, and when it was on the screen, in seconds since the navigation began. */
export interface Screen {
  readonly file: string;
  readonly seconds: number;
}

/** Keeps a picture of the page each time it looks different. */
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
      // The browser waits for this before it sends the next one; at the end there may be nobody left to tell.
      void session.send('Page.screencastFrameAck', { sessionId }).catch(() => undefined);
    });
    await session.send('Page.startScreencast', { format: 'jpeg', quality: JPEG_QUALITY, maxWidth: MAX_WIDTH });
    return screens;
  }

  /** Ends it and writes the index. `timeOriginMs` is the start of the navigation on the clock of the day. */
  async stop(timeOriginMs: number | undefined): Promise<void> {
    await inTime(this.session.send('Page.stopScreencast'));
    if (timeOriginMs === undefined) return;
    const screens = this.#taken
      .map(({ file, epochSeconds }): Screen => ({ file, seconds: epochSeconds - timeOriginMs / 1000 }))
      // What was there before is the empty tab.
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
