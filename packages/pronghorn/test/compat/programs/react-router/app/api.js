export const loader = ({ request }) => Response.json({ query: new URL(request.url).search });

export async function action({ request }) {
  if (request.method === 'DELETE') throw new Response('meant', { status: 403 });
  return Response.json({ size: (await request.text()).length }, { status: 201 });
}
