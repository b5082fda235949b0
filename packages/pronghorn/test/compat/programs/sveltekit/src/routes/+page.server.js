import { fail, redirect } from '@sveltejs/kit';

export const load = ({ url, request, cookies, getClientAddress }) => ({
  name: url.searchParams.get('name') ?? 'you',
  agent: request.headers.get('user-agent'),
  visited: cookies.get('visited') ?? 'no',
  address: getClientAddress(),
});

export const actions = {
  default: async ({ request, cookies }) => {
    const name = (await request.formData()).get('name');
    if (name === '') return fail(422, { missing: true });
    cookies.set('visited', 'yes', { path: '/', secure: false });
    redirect(303, `/?name=${name}`);
  },
};
