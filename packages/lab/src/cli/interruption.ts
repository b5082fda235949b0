/** Aborts at the first SIGINT or SIGTERM. At the second the process ends at once, as it would without a handler. */
export function interruption(): AbortSignal {
  const controller = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => {
      controller.abort();
    });
  }
  return controller.signal;
}
