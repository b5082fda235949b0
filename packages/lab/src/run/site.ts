import { originOf } from '../capture/recording.js';
import { CLEAR_PORT, HOST, PORT } from './browser.js';
import type { PageFacts } from '../page/folder.js';
import type { Arm } from '../campaign/plan.js';

/** A page's address for a browser: its URL, and each host and port that leads to the server. */
export interface Site {
  readonly url: string;
  /** `host:port`, the document's first. */
  readonly origins: readonly string[];
}

/**
 * Returns a page's site: a generated page uses the lab's own host; a recording keeps its original
 * hosts.
 */
export function siteOf({ recording, live }: PageFacts, { protocol }: Pick<Arm, 'protocol'>): Site {
  const clear = protocol === 'http';
  if (live !== undefined) {
    const url = clear ? live.url.replace(/^https:/, 'http:') : live.url;
    return { url, origins: [originOf(url)] };
  }
  if (recording !== undefined) {
    const { url, origins } = recording;
    return {
      url: clear ? url.replace(/^https:/, 'http:') : url.replace(/^http:/, 'https:'),
      origins,
    };
  }
  return {
    url: `${clear ? 'http' : 'https'}://${HOST}/`,
    origins: [`${HOST}:${clear ? CLEAR_PORT : PORT}`],
  };
}

/** Returns the host names without their ports. */
export function hostsOf({ origins }: Pick<Site, 'origins'>): string[] {
  return [...new Set(origins.map((origin) => origin.slice(0, origin.lastIndexOf(':'))))];
}
