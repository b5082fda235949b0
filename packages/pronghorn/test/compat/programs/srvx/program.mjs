import { serve } from 'pronghorn/srvx';
import { toNodeHandler } from 'srvx/node';
import { makeApp } from '../h3/program.mjs';

export default (door) => {
  const { fetch } = makeApp();
  if (!door.isPronghorn) return toNodeHandler(fetch);
  const tls = door.isSecure
    ? { key: String(door.tls.key), cert: String(door.tls.cert) }
    : undefined;
  return serve({
    fetch,
    port: 0,
    hostname: '127.0.0.1',
    tls,
    silent: true,
    gracefulShutdown: false,
  }).pronghorn;
};
