export default defineEventHandler(async (event) => {
  setResponseStatus(event, 201);
  return { size: (await readRawBody(event)).length };
});
