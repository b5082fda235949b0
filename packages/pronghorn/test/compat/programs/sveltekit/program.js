// The origin that forms are checked against comes from what the client asked for.
process.env.HOST_HEADER = 'host';
const { handler } = await import('./build/handler.js');

export default () => handler;
