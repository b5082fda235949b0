import { error, json } from '@sveltejs/kit';

export const GET = ({ url }) =>
  json({ path: url.pathname, query: url.search }, { headers: { 'x-own': '1' } });

export const POST = async ({ request }) =>
  json({ size: (await request.arrayBuffer()).byteLength }, { status: 201 });

export const DELETE = () => error(403, 'meant');
