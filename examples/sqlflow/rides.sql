-- Many generated rows: what a ride costs.
SELECT distance, minutes, city, price FROM rides
TRAIN regressor.DNN WITH hidden_units=[32, 16], train.epoch=1, train.batch_size=256
INTO price_of_a_ride;

SELECT id, distance, minutes, city FROM new_rides
PREDICT new_rides.price USING price_of_a_ride;
