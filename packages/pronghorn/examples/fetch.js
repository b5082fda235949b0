const { serve } = require('pronghorn/fetch');

const fetch = (request, { protocol }) => new Response(`${request.method} over ${protocol}`);
serve({ fetch, port: process.env.PORT ?? 3000 }, () => console.log('listening'));
