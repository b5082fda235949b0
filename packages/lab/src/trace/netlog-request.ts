import type { NetLogEvent } from './netlog-events.js';

/**
 * Returns the URL of a request, from the pseudo-header fields that both protocols log as `":path:
 * /"`.
 */
export function requestUrl({ params }: NetLogEvent): string | undefined {
  const headers = params.headers;
  if (!Array.isArray(headers)) return undefined;
  const field = (name: string): string | undefined => {
    const line: unknown = headers.find(
      (each) => typeof each === 'string' && each.startsWith(`${name}: `),
    );
    return typeof line === 'string' ? line.slice(name.length + 2) : undefined;
  };
  const [scheme, authority, path] = [field(':scheme'), field(':authority'), field(':path')];
  return scheme === undefined || authority === undefined || path === undefined
    ? undefined
    : `${scheme}://${authority}${path}`;
}

/** Returns the port at the end of `10.77.0.1:59814` or `[fd77::1]:59814`. */
export function portOf(address: string | undefined): number | undefined {
  const port = address === undefined ? undefined : /:(\d+)$/.exec(address)?.[1];
  return port === undefined ? undefined : Number(port);
}
