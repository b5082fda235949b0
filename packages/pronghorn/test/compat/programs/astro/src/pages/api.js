export const prerender = false;

export const GET = ({ url, cookies }) => {
  cookies.set('visited', 'yes', { path: '/' });
  return Response.json({ path: url.pathname, query: url.search }, { headers: { 'x-own': '1' } });
};

export const POST = async ({ request }) =>
  Response.json({ size: (await request.arrayBuffer()).byteLength }, { status: 201 });
