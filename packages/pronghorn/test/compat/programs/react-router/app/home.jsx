import { data, Form, redirect } from 'react-router';

export function loader({ request }) {
  const name = new URL(request.url).searchParams.get('name') ?? 'you';
  const headers = { 'x-own': '1', 'set-cookie': 'visited=yes; Path=/' };
  return data(
    { name, agent: request.headers.get('user-agent'), cookie: request.headers.get('cookie') },
    { headers },
  );
}

export const headers = ({ loaderHeaders }) => loaderHeaders;

export async function action({ request }) {
  const form = await request.formData();
  return redirect(`/?name=${form.get('name')}`);
}

export default function Home({ loaderData: { name, agent, cookie } }) {
  return (
    <main>
      <p>{`hello ${name}, ${agent}, ${cookie}`}</p>
      <Form method="post">
        <input name="name" />
      </Form>
    </main>
  );
}
