import type { CDPSession, Protocol as DevTools } from 'puppeteer-core';
import type { DevToolsRequest } from '../samples/sample.js';

/**
 * Returns whether this is the browser's own request for the icon in the tab: no page waits for it,
 * and no setting turns it off.
 */
export function isIconRequest({
  type,
  initiator,
}: DevTools.Network.RequestWillBeSentEvent): boolean {
  return type === 'Other' && initiator.type === 'other';
}

type Open<T> = { -readonly [K in keyof T]: T[K] };

/**
 * Collects the developer tools' network events of all requests of a page, its frames and its
 * workers.
 */
export class RequestLog {
  readonly #requests = new Map<string, Open<DevToolsRequest>>();
  #redirects = 0;
  /** The page's main frame: the one of its first request. */
  #mainFrame: string | undefined;

  /**
   * Starts listening to a page, and to the frames and workers that it starts. Call before the
   * navigation.
   */
  async attach(session: CDPSession): Promise<void> {
    session.on('sessionattached', (child: CDPSession) => {
      // The target waits until it is told to run. One that has ended meanwhile has nothing to
      // report.
      this.attach(child)
        .then(() => child.send('Runtime.runIfWaitingForDebugger'))
        .catch(() => undefined);
    });
    session.on('Network.requestWillBeSent', (event) => {
      this.#onRequest(event);
    });
    session.on('Network.responseReceived', (event) => {
      this.#onResponse(event.requestId, event.response);
    });
    session.on('Network.loadingFinished', ({ requestId, encodedDataLength, timestamp }) => {
      const request = this.#requests.get(requestId);
      // The later end belongs to the browser's error page, which did not cross a network.
      if (request?.error !== undefined) return;
      if (request)
        Object.assign(request, {
          finished: true,
          encodedDataLength,
          endedMonotonicMs: timestamp * 1000,
        });
    });
    session.on('Network.loadingFailed', ({ requestId, errorText, timestamp }) => {
      const request = this.#requests.get(requestId);
      if (request) Object.assign(request, { error: errorText, endedMonotonicMs: timestamp * 1000 });
    });
    await session.send('Network.enable');
    await session.send('Target.setAutoAttach', {
      autoAttach: true,
      waitForDebuggerOnStart: true,
      flatten: true,
    });
  }

  /**
   * Returns the requests over the network in the order of their start. `data:` and `blob:` URLs
   * never leave the browser and are skipped.
   */
  requests(): DevToolsRequest[] {
    return [...this.#requests.values()].filter(({ url }) => /^https?:/.test(url));
  }

  #onRequest(event: DevTools.Network.RequestWillBeSentEvent): void {
    if (event.redirectResponse) this.#onRedirect(event.requestId, event.redirectResponse);
    this.#mainFrame ??= event.frameId;
    const isMain =
      event.type === 'Document' && event.frameId !== undefined && event.frameId === this.#mainFrame;
    this.#requests.set(event.requestId, {
      requestId: event.requestId,
      method: event.request.method,
      url: event.request.url,
      type: event.type ?? 'Other',
      ...(isMain && { mainDocument: true }),
      ...(isIconRequest(event) && { icon: true }),
      priority: event.request.initialPriority,
      startedMonotonicMs: event.timestamp * 1000,
      finished: false,
    });
  }

  /** Moves the redirected request to another key, since the next one has the same ID. */
  #onRedirect(requestId: string, response: DevTools.Network.Response): void {
    this.#onResponse(requestId, response);
    const before = this.#requests.get(requestId);
    if (!before) return;
    this.#redirects += 1;
    before.finished = true;
    this.#requests.set(`${requestId}-redirect-${this.#redirects}`, before);
    this.#requests.delete(requestId);
  }

  #onResponse(requestId: string, response: DevTools.Network.Response): void {
    const request = this.#requests.get(requestId);
    if (!request) return;
    request.status = response.status;
    request.statusText = response.statusText;
    request.mimeType = response.mimeType;
    request.connectionId = response.connectionId;
    request.connectionReused = response.connectionReused;
    if (response.protocol !== undefined) request.protocol = response.protocol;
    if (response.alternateProtocolUsage !== undefined)
      request.alternateProtocolUsage = response.alternateProtocolUsage;
    if (response.remoteIPAddress !== undefined) {
      request.remoteAddress = `${response.remoteIPAddress}:${response.remotePort ?? 0}`;
    }
    if (response.timing) request.timing = { ...response.timing };
  }
}
