export { serve, type ServeOptions, type FetchServer, type ConnectionInfo } from '.';

/** Returns the client's address, like the ConnInfo helpers of Hono. */
export function getConnInfo(c: { env: any }): {
  remote: { address: string; port: number; addressType: 'IPv4' | 'IPv6' };
};
