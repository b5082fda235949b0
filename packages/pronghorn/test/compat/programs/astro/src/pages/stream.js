export const GET = () => {
  const encoder = new TextEncoder();
  const body = new ReadableStream({
    async start(controller) {
      for (let at = 0; at < 3; at++) {
        controller.enqueue(encoder.encode(`${at} ${'x'.repeat(10_000)}\n`));
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      controller.close();
    },
  });
  return new Response(body, { headers: { 'content-type': 'text/plain' } });
};
