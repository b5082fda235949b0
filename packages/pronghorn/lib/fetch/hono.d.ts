export { serve, type ServeOptions, type FetchServer, type ConnectionInfo } from '.';

/** Who asks, as Hono's helpers say it. */
export function getConnInfo(c: { env: any }): {
  remote: { address: string; port: number; addressType: 'IPv4' | 'IPv6' };
};
