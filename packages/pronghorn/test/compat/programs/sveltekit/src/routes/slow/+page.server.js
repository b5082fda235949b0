export const load = () => ({ late: new Promise((resolve) => setTimeout(resolve, 20, 'late')) });
