/**
 * Returns a signal that aborts at the first SIGINT or SIGTERM. The second ends the process at once,
 * as without a handler.
 */
export function interruption(): AbortSignal {
  const controller = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => {
      controller.abort();
    });
  }
  return controller.signal;
}
